"""What machine translation needs besides a Trainer: pairs, a vocabulary, models, batches by tokens.

pairs = load_pairs("en", "de")                                   # source and target, as text
vocabulary = load_vocabulary(pairs["train"])                     # a shared BPE
model = transformer("small", vocabulary)                         # a MarianMTModel
train = encode(pairs["train"], vocabulary)                       # input_ids, attention_mask, labels
batches = TokenBatches(lengths(train), 4_096, worker=0, workers=4, seed=0)
"""

from __future__ import annotations

from hf_decentral.translation.averages import average_checkpoints
from hf_decentral.translation.batches import TokenBatches
from hf_decentral.translation.encode import encode, lengths
from hf_decentral.translation.languages import language_id, set_languages
from hf_decentral.translation.models import SIZES, load_model, transformer
from hf_decentral.translation.pairs import load_pairs
from hf_decentral.translation.vocabulary import load_vocabulary

__all__ = [
    "SIZES",
    "TokenBatches",
    "average_checkpoints",
    "encode",
    "language_id",
    "lengths",
    "load_model",
    "load_pairs",
    "load_vocabulary",
    "set_languages",
    "transformer",
]
