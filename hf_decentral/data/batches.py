"""Batches of full contexts: every worker its own part, the same number on each, the order set by a seed.

Both kinds are endless iterators of ``[batch_size, block_size]`` int64 tensors, with a ``state_dict`` from
which another run goes on exactly where this one stopped. Because they never end, no worker can run out of
data before another: a run stops where its number of steps says so, on all workers at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from hf_decentral.data.corpus import Corpus
from hf_decentral.data.packing import Tokens, tokenize
from hf_decentral.errors import data as errors


class ContextBatches(Iterator[torch.Tensor]):
    """Batches out of a row of tokens.

    The row is cut into contexts. Each epoch draws one order of all contexts from the seed; step after step,
    all workers together take the next ``workers * batch_size`` of it, each its own slice. So no context is
    read twice in an epoch, and the union over workers does not depend on how many there are.
    """

    def __init__(
        self,
        tokens: Tokens,
        block_size: int,
        batch_size: int,
        *,
        worker: int = 0,
        workers: int = 1,
        seed: int = 0,
    ) -> None:
        """Cut ``tokens`` ``[T]`` into ``T // block_size`` contexts.

        Raises:
            DataError: there are fewer contexts than one step of all workers takes.
        """
        contexts = len(tokens) // block_size
        if contexts < workers * batch_size:
            raise errors.too_small("training", contexts, workers * batch_size, block_size, workers)
        self.contexts: Tokens = tokens[: contexts * block_size].reshape(contexts, block_size)
        self.batch_size, self.worker, self.workers, self.seed = batch_size, worker, workers, seed
        self.per_epoch = contexts // (workers * batch_size)
        self.epoch = self.taken = 0
        self._order = self._draw()

    def _draw(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.random.default_rng((self.seed, self.epoch)).permutation(len(self.contexts))

    def __next__(self) -> torch.Tensor:
        if self.taken == self.per_epoch:
            self.epoch, self.taken = self.epoch + 1, 0
            self._order = self._draw()
        first = (self.taken * self.workers + self.worker) * self.batch_size
        self.taken += 1
        rows = self.contexts[self._order[first : first + self.batch_size]]
        return torch.from_numpy(rows.astype(np.int64))

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and how many of its contexts all workers together have taken."""
        return {"epoch": self.epoch, "contexts": self.taken * self.workers * self.batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the contexts that were taken; with other numbers of workers, at the next whole step."""
        self.epoch = int(state["epoch"])
        step = self.workers * self.batch_size
        self.taken = min(self.per_epoch, -(-int(state["contexts"]) // step))
        self._order = self._draw()


class StreamBatches(Iterator[torch.Tensor]):
    """Batches out of documents that are tokenized while they are read, for text too large to keep.

    Worker ``w`` of ``W`` reads the training documents ``w, w + W, …`` in the dataset's own order (shuffle the
    dataset before if its order means something), and begins again at its end.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Any,
        fraction: float,
        shape: tuple[int, int],
        worker: int,
        workers: int,
    ) -> None:
        """``shape`` is ``(batch_size, block_size)``; ``fraction`` of the documents is held out."""
        self.corpus, self.tokenizer, self.fraction, self.shape = corpus, tokenizer, fraction, shape
        self.worker, self.workers = worker, workers
        self.epoch = self.documents = 0
        self.rest: list[int] = []
        self._reader = self._read()

    def _read(self) -> Iterator[list[int]]:
        """Tokens of this worker's documents, from number ``self.documents`` on, for ever."""
        while True:
            some, first = False, self.documents
            for number, text in self.corpus.train(self.fraction, self.documents):
                self.documents = number + 1
                if number % self.workers == self.worker and text:
                    some = True
                    yield next(tokenize([text], self.tokenizer))
            if not some and first == 0:  # a whole epoch without a word for this worker
                batch_size, block_size = self.shape
                raise errors.too_small("training", 0, batch_size * self.workers, block_size, self.workers)
            self.epoch, self.documents = self.epoch + 1, 0

    def __next__(self) -> torch.Tensor:
        batch_size, block_size = self.shape
        while len(self.rest) < batch_size * block_size:
            self.rest.extend(next(self._reader))
        taken, self.rest = self.rest[: batch_size * block_size], self.rest[batch_size * block_size :]
        return torch.tensor(taken, dtype=torch.int64).view(batch_size, block_size)

    def state_dict(self) -> dict[str, Any]:
        """The next document, and the tokens that were read and not yet given out."""
        return {
            "epoch": self.epoch,
            "documents": self.documents,
            "rest": list(self.rest),
            "workers": self.workers,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at the next document. With another number of workers the tokens left over are dropped."""
        self.epoch, self.documents = int(state["epoch"]), int(state["documents"])
        self.rest = list(state["rest"]) if state["workers"] == self.workers else []
        self._reader = self._read()


def validation(
    tokens: Tokens, block_size: int, batch_size: int, *, worker: int, workers: int, limit: int
) -> list[torch.Tensor]:
    """This worker's part of the validation contexts, the same contexts in every run.

    Args:
        tokens: ``[V]`` validation tokens.
        limit: at most so many contexts, evenly spread over the text; 0 takes all.

    Returns:
        Batches ``[≤ batch_size, block_size]``; they may be fewer on one worker than on another, or none.

    Raises:
        DataError: there is not one whole context.
    """
    contexts = len(tokens) // block_size
    if contexts == 0:
        raise errors.too_small("validation", 0, 1, block_size, 1)
    count = min(limit, contexts) if limit else contexts
    chosen = np.linspace(0, contexts - 1, count).round().astype(np.int64)[worker::workers]
    rows = tokens[: contexts * block_size].reshape(contexts, block_size)
    starts = range(0, len(chosen), batch_size)
    return [torch.from_numpy(rows[chosen[start : start + batch_size]].astype(np.int64)) for start in starts]


def first_tokens(corpus: Corpus, tokenizer: Any, fraction: float, count: int) -> Tokens:
    """The first ``count`` validation tokens of a stream, ``[≤ count]``."""
    texts = (text for text in corpus.valid(fraction) if text)
    row = itertools.islice(itertools.chain.from_iterable(tokenize(texts, tokenizer)), count)
    return np.fromiter(row, dtype=np.uint32)
