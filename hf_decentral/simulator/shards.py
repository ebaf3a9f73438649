"""Who trains on which samples, and which of them come in which step.

Batches are a pure function of the seed, the worker and the step, so that a run goes on exactly after a stop
and worker ``w`` draws the same numbers whatever the number of workers is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hf_decentral.errors import out_of_range
from hf_decentral.errors.simulator import too_few_samples
from hf_decentral.simulator.base import Problem

TENTHS = 10
_SPLIT, _BATCH = 1, 2  # streams of random numbers of one seed
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Shards:
    """The samples of all workers.

    Attributes:
        order: ``[N]``, numbers of the samples, those of worker 0 first.
        starts: ``[W + 1]``, where in it each worker's samples begin.
        seed: of the batches.
    """

    order: Numbers
    starts: Numbers
    seed: int

    @property
    def workers(self) -> int:
        """Number of workers, ``W``."""
        return len(self.starts) - 1

    def of(self, worker: int) -> Numbers:
        """The numbers of the samples of one worker."""
        return self.order[self.starts[worker] : self.starts[worker + 1]]

    def batch(self, step: int, size: int) -> Tensor:
        """The samples of a step, ``[W, size]``, drawn from each shard with replacement."""
        drawn = np.random.default_rng((_BATCH, self.seed, step)).random((self.workers, size))
        sizes = np.diff(self.starts)[:, None]
        # A product that is rounded up to the size would be the first sample of the next worker.
        inside = np.minimum((drawn * sizes).astype(np.int64), sizes - 1)
        return torch.from_numpy(self.order[self.starts[:-1, None] + inside])


def split(problem: Problem, workers: int, skew: float | None = None, seed: int = 0) -> Shards:
    """Share the training samples out, the sizes of two shards differing by one at most.

    Args:
        problem: whose samples.
        workers: number of workers.
        skew: None: every worker gets a random part. Else the parameter alpha of a Dirichlet distribution: the
            shares in which a worker takes from the groups of the problem are drawn from
            ``Dir(alpha * sizes of the groups)`` (Hsu et al. 2019, arXiv 1909.06335); 0.1 is one or two
            groups for each worker, 100 hardly differs from random parts. The last workers take what is left.
        seed: of the split and of the batches.

    Raises:
        SettingsError: fewer samples than workers, or a skew that is not above 0.
    """
    samples = problem.samples
    if samples < workers:
        raise too_few_samples(problem.name, samples, workers)
    if skew is not None and not 0 < skew < float("inf"):
        raise out_of_range("skew", skew, "a number above 0", "0.1 is strong, 10 weak; leave it out for none")
    rng = np.random.default_rng((_SPLIT, seed))
    mixed = rng.permutation(samples)
    starts = np.arange(workers + 1, dtype=np.int64) * samples // workers
    if skew is not None:
        mixed = _skewed(groups_of(problem).numpy()[mixed], mixed, np.diff(starts), skew, rng)
    return Shards(mixed, starts, seed)


def groups_of(problem: Problem) -> Tensor:
    """The group of each training sample, ``[N]``, by which shards are skewed."""
    targets = problem.train[1]
    if problem.groups is not None:
        return problem.groups.long().cpu()
    if problem.classifies and targets.ndim == 1:
        return targets.long().cpu()
    tenth = torch.arange(len(targets)) * TENTHS // len(targets)
    if targets.ndim == 1:
        groups = torch.empty_like(tenth)
        groups[targets.cpu().argsort(stable=True)] = tenth
        return groups
    return tenth


def _skewed(
    groups: Numbers, samples: Numbers, sizes: Numbers, skew: float, rng: np.random.Generator
) -> Numbers:
    """The samples in a new order, in which each worker's are mostly of few groups.

    Args:
        groups: ``[N]``, the group of each sample.
        samples: ``[N]``, the samples in a random order.
        sizes: ``[W]``, how many each worker takes.
        skew: alpha.
        rng: where the shares are drawn from.
    """
    kinds, groups = np.unique(groups, return_inverse=True)
    piles = [samples[groups == kind] for kind in range(len(kinds))]
    whole = np.array([len(pile) for pile in piles], dtype=np.float64) / len(samples)
    left = np.array([len(pile) for pile in piles], dtype=np.int64)
    taken: list[Numbers] = [np.empty(0, np.int64)] * len(sizes)
    for worker in rng.permutation(len(sizes)):
        shares = rng.dirichlet(np.maximum(skew * whole * len(kinds), 1e-3))
        counts = _counts(int(sizes[worker]), shares, left, rng)
        ends = left.copy()
        left = left - counts
        taken[worker] = np.concatenate([pile[a:b] for pile, a, b in zip(piles, left, ends, strict=True)])
    return np.concatenate(taken)


def _counts(size: int, shares: NDArray[np.float64], left: Numbers, rng: np.random.Generator) -> Numbers:
    """How many samples of each group a worker takes: by its shares, as far as there are any left."""
    counts = np.zeros_like(left)
    while missing := size - int(counts.sum()):
        room = left - counts
        open_ = np.where(room > 0, shares, 0.0)
        if not open_.sum() > 0:
            open_ = room.astype(np.float64)
        counts += np.minimum(rng.multinomial(missing, open_ / open_.sum()), room)
    return counts
