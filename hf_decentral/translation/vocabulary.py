"""One vocabulary for both languages: a byte-level BPE trained on both sides of the training pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_decentral.data import cache
from hf_decentral.errors import out_of_range

PAD, EOS, UNK, BOS = SPECIAL = ("<pad>", "</s>", "<unk>", "<s>")
# 256 bytes and the four above.
SMALLEST = 260
# Pieces of text seen less often than this do not become a token, so that a small text gets a small
# vocabulary whose every token is seen often enough to be learned: 662 tokens of 480 pairs, 8,218 of 20,000.
SEEN = 20
# So many pairs, evenly spread, tell the frequent pieces of any number of them.
MOST_PAIRS = 1_000_000


def load_vocabulary(pairs: Any, size: int = 32_000, cache_dir: str | None = None) -> Any:
    """Train a tokenizer on pairs, or load it where the same pairs were met before.

    Args:
        pairs: the training split of `load_pairs`.
        size: largest number of tokens; a small text ends with fewer (`SEEN`).
        cache_dir: where to keep it; the default lies in the Hugging Face cache.

    Returns:
        A `PreTrainedTokenizerFast` with pad, eos, unk and bos. It ends each sequence with eos, splits words
        of the text that look like a special token, has a token for every byte, so that nothing is unknown,
        and decodes text without space at its ends to exactly that text.

    Raises:
        SettingsError: a size below the 256 bytes and the special tokens.
        DataError: the cache cannot be written.
    """
    import transformers  # heavy

    if size < SMALLEST:
        raise out_of_range(
            "vocabulary_size", size, f"at least {SMALLEST} (256 bytes, 4 special)", "32000 is the paper's"
        )
    folder = cache.once(
        cache.root(cache_dir) / "vocabularies" / cache.key(form=1, size=size, seen=SEEN, text=_mark(pairs)),
        lambda aside: _train(pairs, size, aside),
        lambda found: (found / "tokenizer_config.json").exists(),
    )
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def _chunks(pairs: Any) -> Iterator[list[str]]:
    step = -(-len(pairs) // MOST_PAIRS)
    chosen = pairs if step == 1 else pairs.select(range(0, len(pairs), step))
    for batch in chosen.select_columns(["source", "target"]).iter(batch_size=10_000):
        yield batch["source"]
        yield batch["target"]


def _mark(pairs: Any) -> str:
    """Differs where the text does, and nowhere else: every worker, on every host, must find the same."""
    digest = hashlib.sha256()
    for chunk in _chunks(pairs):
        digest.update("\n".join(chunk).encode())
    return digest.hexdigest()


def _train(pairs: Any, size: int, folder: Path) -> None:
    import tokenizers
    import transformers

    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    # A space before the first word, as before the others: a word is one token wherever it stands.
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteLevel(), tokenizers.decoders.Strip(" ", 1, 0)]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=SEEN,
        special_tokens=list(SPECIAL),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_chunks(pairs), trainer)
    bpe.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, bpe.token_to_id(EOS))]
    )
    make: Any = transformers.PreTrainedTokenizerFast
    fast = make(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        bos_token=BOS,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )
    fast.save_pretrained(str(folder))
