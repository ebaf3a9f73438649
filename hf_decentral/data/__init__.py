"""Text for pretraining: find it, tokenize it once, hand every worker its own batches.

data = load_text("my/folder", "bpe:2048")
batches = data.batches(block_size=64, batch_size=8, worker=0, workers=4, seed=0)     # endless
held_out = data.validation(block_size=64, batch_size=8, worker=0, workers=4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_decentral.data import batches, packing
from hf_decentral.data import tokenizer as tokenizers
from hf_decentral.data.batches import ContextBatches, StreamBatches, validation
from hf_decentral.data.corpus import Corpus, check_fraction, resolve

__all__ = ["ContextBatches", "Corpus", "StreamBatches", "TextData", "load_text", "resolve"]


@dataclass(frozen=True)
class TextData:
    """A dataset and its tokenizer.

    Attributes:
        corpus: where the documents come from.
        tokenizer: a tokenizer of transformers.
        fraction: share of the documents held out for validation, where the dataset has no split for it.
        packed: all tokens, mapped from the cache; None where the text is streamed.
    """

    corpus: Corpus
    tokenizer: Any
    fraction: float
    packed: packing.Packed | None

    def batches(
        self, block_size: int, batch_size: int, *, worker: int = 0, workers: int = 1, seed: int = 0
    ) -> ContextBatches | StreamBatches:
        """This worker's endless training batches.

        Raises:
            DataError: less text than one step of all workers takes.
        """
        if self.packed is not None:
            return ContextBatches(
                self.packed.train, block_size, batch_size, worker=worker, workers=workers, seed=seed
            )
        return StreamBatches(
            self.corpus, self.tokenizer, self.fraction, (batch_size, block_size), worker, workers
        )

    def validation(
        self, block_size: int, batch_size: int, *, worker: int = 0, workers: int = 1, limit: int = 0
    ) -> list[Any]:
        """This worker's part of at most ``limit`` validation contexts (0: all; of a stream, 1,024)."""
        if self.packed is not None:
            tokens = self.packed.valid
        else:
            limit = limit or 1024
            tokens = batches.first_tokens(self.corpus, self.tokenizer, self.fraction, limit * block_size)
        return validation(tokens, block_size, batch_size, worker=worker, workers=workers, limit=limit)


def load_text(
    dataset: str | None = None,
    tokenizer: str = "bpe:2048",
    *,
    text_column: str = "text",
    validation_fraction: float = 0.05,
    streaming: bool = False,
    cache_dir: str | None = None,
) -> TextData:
    """Find a dataset, load or train its tokenizer, and tokenize it (once: the result is cached).

    Args:
        dataset: a file, a folder, a name on the hub, or None for the small text of the package.
        tokenizer: a name on the hub, a folder, or ``bpe:SIZE``.
        text_column: the column, or JSON key, that holds the text.
        validation_fraction: share of the documents to hold out where the dataset has no split for it.
        streaming: tokenize while training, and keep nothing on disk.
        cache_dir: where to keep tokenizers and tokens; the default lies in the Hugging Face cache.

    Raises:
        DataError: the text or the tokenizer cannot be had.
        SettingsError: a share that leaves nothing to train on.
    """
    check_fraction(validation_fraction)
    corpus = resolve(dataset, text_column, streaming=streaming)
    loaded = tokenizers.load(tokenizer, corpus, validation_fraction, cache_dir)
    packed = None if streaming else packing.pack(corpus, loaded, validation_fraction, cache_dir)
    return TextData(corpus, loaded, validation_fraction, packed)
