"""Batches by tokens: sentences of like length together, the same number of batches for every worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from hf_decentral.errors import out_of_range
from hf_decentral.errors import translation as errors

logger = logging.getLogger(__name__)

Numbers = npt.NDArray[np.int64]


class TokenBatches(Sampler[list[int]]):
    """The batches of one worker, as lists of row numbers; a ``batch_sampler`` of a torch DataLoader.

    All workers' batches of a step are made together: the rows, sorted by length, are cut into steps of
    ``workers * k`` neighbours, with ``k`` as large as the tokens allow, and dealt like cards, so that the
    workers of a step get about equally many rows, about equally long. A row's length is that of its longer
    side, so a padded batch has at most ``max_tokens`` source tokens and at most ``max_tokens`` target tokens.
    The order of the steps, and which of equally long rows come together, is drawn from the seed and the
    epoch, the same on every worker; the first batches of an epoch can be skipped to go on in its middle.

    Every row comes once in an epoch, with one exception: where every step holds one row for each worker, and
    the rows are no multiple of the workers, up to ``workers - 1`` rows come twice. A row longer than
    ``max_tokens`` is a batch of its own.

    The loader is already this worker's: it must not be split once more.

    Attributes:
        epoch: number of the epoch, from 0.
        left_out: how many rows are longer than ``drop_longer_than``.
    """

    def __init__(
        self,
        lengths: Sequence[int] | npt.NDArray[Any],
        max_tokens: int,
        *,
        worker: int,
        workers: int,
        seed: int,
        shuffle: bool = True,
        drop_longer_than: int | None = None,
    ) -> None:
        """Plan the steps.

        Args:
            lengths: ``[N]`` tokens of each row, or ``[N, 2]`` of its source and target (`encode.lengths`).
            max_tokens: padded tokens of one side of one worker's batch. The paper's 25,000 are those of all
                workers together: 25,000 // workers.
            worker: number of this worker, from 0.
            workers: how many there are.
            seed: with the epoch, sets the order.
            shuffle: draw the order; False goes from the longest rows to the shortest.
            drop_longer_than: leave out rows of which one side is longer.

        Raises:
            DataError: fewer rows than workers.
            SettingsError: a number out of range.
        """
        if max_tokens < 1:
            raise out_of_range("max_tokens", max_tokens, "at least 1", "4096 is usual")
        if not 0 <= worker < workers:
            raise out_of_range(
                "worker", worker, f"from 0 to {workers - 1}", "each worker gives its own number"
            )
        longest = np.asarray(lengths, dtype=np.int64)
        longest = longest.max(axis=1) if longest.ndim == 2 else longest
        kept = np.arange(len(longest))
        if drop_longer_than is not None:
            kept = kept[longest <= drop_longer_than]
        self.left_out = len(longest) - len(kept)
        if len(kept) < workers:
            raise errors.too_few_pairs(len(kept), workers, self.left_out)
        self.worker, self.workers, self.seed, self.shuffle = worker, workers, seed, shuffle
        self.epoch = 0
        self._rows: Numbers = kept
        self._lengths: Numbers = longest[kept]
        self._steps = _cut(np.sort(self._lengths)[::-1], max_tokens, workers)
        alone = int((self._lengths > max_tokens).sum())
        if alone:
            logger.warning("%d pairs are longer than max_tokens=%d: batches of their own", alone, max_tokens)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order that the next iteration takes."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of one epoch; the same for every epoch and every worker."""
        return len(self._steps)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self.seed, self.epoch))
        count = len(self._rows)
        drawn = generator.permutation(count) if self.shuffle else np.arange(count)
        # Stable: equally long rows stay in the order that was drawn.
        order = drawn[np.argsort(-self._lengths[drawn], kind="stable")]
        steps = generator.permutation(self._steps) if self.shuffle else self._steps
        for start, end in steps.tolist():
            yield self._rows[order[start + self.worker : end : self.workers]].tolist()


def _cut(longest_first: Numbers, max_tokens: int, workers: int) -> Numbers:
    """Cut sorted rows into steps: ``[S, 2]`` starts and ends, each of ``workers`` rows or more."""
    fits = np.maximum(max_tokens // np.maximum(longest_first, 1), 1).tolist()
    rows = len(fits)
    starts = [0]
    while starts[-1] + workers * fits[starts[-1]] < rows:
        starts.append(starts[-1] + workers * fits[starts[-1]])
    ends = [*starts[1:], rows]
    if rows - starts[-1] < workers:
        # Too few rows are left: the step before gives some of its own, or lends them if it has one a worker.
        starts[-1] = rows - workers
        if fits[starts[-2]] > 1:
            ends[-2] = starts[-1]
    return np.stack([np.array(starts, np.int64), np.array(ends, np.int64)], axis=1)
