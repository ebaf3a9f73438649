"""One exchange as a value: who hears whom, with which weight.

A :class:`Round` knows nothing of processes. Row ``i`` of its matrix holds the weights with which worker
``i`` sums what it receives, its own parameters included: ``x_i <- sum_j w_ij x_j``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

Row = tuple[tuple[int, float], ...]
_NOTHING = 1e-15  # below this a weight is what rounding left over


@dataclass(frozen=True)
class Round:
    """Weights of one exchange among ``W`` workers.

    Attributes:
        rows: for each receiving worker its ``(sender, weight)`` pairs, senders ascending, own weight
            included when it is not zero. Every row sums to one.
    """

    rows: tuple[Row, ...]

    @staticmethod
    def identity(workers: int) -> Round:
        """Nobody talks: every worker keeps its own parameters."""
        return Round(tuple(((i, 1.0),) for i in range(workers)))

    @staticmethod
    def average(groups: Iterable[Sequence[int]], workers: int) -> Round:
        """Each group takes its exact mean; workers in no group keep their own parameters."""
        rows: list[Row] = [((i, 1.0),) for i in range(workers)]
        for group in groups:
            row = tuple((j, 1.0 / len(group)) for j in sorted(group))
            for i in group:
                rows[i] = row  # one shared object: a complete round of 1,000 workers stays small
        return Round(tuple(rows))

    @staticmethod
    def from_matrix(weights: Tensor) -> Round:
        """The round of a ``[W, W]`` matrix; entries that are exactly zero are no connection."""
        return Round(
            tuple(tuple((j, float(w)) for j, w in enumerate(row) if w != 0.0) for row in weights.tolist())
        )

    @property
    def workers(self) -> int:
        """Number of workers, ``W``."""
        return len(self.rows)

    @cached_property
    def key(self) -> str:
        """A short name for these weights, the same in every process and on every day."""
        return hashlib.blake2b(repr(self.rows).encode(), digest_size=6).hexdigest()

    @cached_property
    def idle(self) -> bool:
        """True when no number would travel."""
        return all(len(row) == 1 and row[0][0] == i for i, row in enumerate(self.rows))

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...] | None:
        """The groups of two and more workers whose mean this round takes, or None if it is no such mean."""
        members: dict[Row, list[int]] = {}
        for i, row in enumerate(self.rows):
            members.setdefault(row, []).append(i)
        found = []
        for row, group in members.items():
            if [j for j, _ in row] != group or any(w != row[0][1] for _, w in row):
                return None
            if len(group) > 1:
                found.append(tuple(group))
        return tuple(found)

    @cached_property
    def mutual(self) -> bool:
        """True where any two workers hear each other with the same weight."""
        weights = [dict(row) for row in self.rows]
        return all(
            abs(weights[j].get(i, 0.0) - weight) <= 1e-12
            for i, row in enumerate(self.rows)
            for j, weight in row
        )

    @cached_property
    def matchings(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The pairs ``(i, j)``, ``i < j``, of workers that talk, in sets in which nobody is twice.

        Each pair goes to the first set that has room for it, so that there are fewer sets than twice the
        neighbours of the worker that has most of them (greedy colouring of edges).
        """
        busy: list[set[int]] = []
        found: list[list[tuple[int, int]]] = []
        for pair in sorted(
            {(min(i, j), max(i, j)) for i, row in enumerate(self.rows) for j, _ in row if i != j}
        ):
            k = next((k for k, workers in enumerate(busy) if workers.isdisjoint(pair)), len(busy))
            if k == len(busy):
                busy.append(set())
                found.append([])
            busy[k].update(pair)
            found[k].append(pair)
        return tuple(map(tuple, found))

    @cached_property
    def swaps(self) -> tuple[Round, ...]:
        """A round for each of :attr:`matchings`, in which a worker hears its partner alone."""
        rounds = []
        for pairs in self.matchings:
            rows: list[Row] = [((i, 1.0),) for i in range(self.workers)]
            for i, j in pairs:
                rows[i], rows[j] = ((j, 1.0),), ((i, 1.0),)
            rounds.append(Round(tuple(rows)))
        return tuple(rounds)

    def senders(self, worker: int) -> tuple[int, ...]:
        """Whom ``worker`` hears, itself excepted, ascending."""
        return tuple(j for j, _ in self.rows[worker] if j != worker)

    @cached_property
    def _receivers(self) -> tuple[tuple[int, ...], ...]:
        heard_by: list[list[int]] = [[] for _ in self.rows]
        for i, row in enumerate(self.rows):
            for j, _ in row:
                if i != j:
                    heard_by[j].append(i)
        return tuple(map(tuple, heard_by))

    def receivers(self, worker: int) -> tuple[int, ...]:
        """Who hears ``worker``, itself excepted, ascending."""
        return self._receivers[worker]

    def matrix(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The weights as a dense ``[W, W]`` tensor; row ``i`` is what worker ``i`` receives."""
        dense = torch.zeros(self.workers, self.workers, dtype=dtype)
        for i, row in enumerate(self.rows):
            for j, weight in row:
                dense[i, j] = weight
        return dense

    def without(self, dead: Iterable[int]) -> Round:
        """The same round when some workers no longer take part, doubly stochastic if it was before.

        A worker has lost the weights with which it heard the dead, and those with which they heard it. It
        takes back for itself what it lost of both: in a symmetric round that is all, and the mean of the
        living is kept, which scaling the rest of a row up would not do. In a directed one somebody heard a
        dead worker who itself heard somebody else; those two close the gap.
        """
        gone = frozenset(dead)
        rows = [{j: w for j, w in row if j not in gone} for row in self.rows]
        needs = [0.0] * self.workers  # what is missing from the sum of a row
        gives = [0.0] * self.workers  # what is missing from the sum of a column
        for i, row in enumerate(self.rows):
            for j, weight in row:
                if j in gone and i not in gone:
                    needs[i] += weight
                elif i in gone and j not in gone:
                    gives[j] += weight
        for i, need in enumerate(needs):
            own = min(need, gives[i])
            if own > 0:
                rows[i][i] = rows[i].get(i, 0.0) + own
                needs[i] -= own
                gives[i] -= own
        givers = [j for j, left in enumerate(gives) if left > _NOTHING]
        for i, need in enumerate(needs):
            while need > _NOTHING and givers:
                j = givers[0]
                moved = min(need, gives[j])
                rows[i][j] = rows[i].get(j, 0.0) + moved
                need -= moved
                gives[j] -= moved
                if gives[j] <= _NOTHING:
                    givers.pop(0)
        mended: list[Row] = [tuple(sorted(row.items())) for row in rows]
        for i in gone:
            mended[i] = ((i, 1.0),)
        return Round(tuple(mended))
