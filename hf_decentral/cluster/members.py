"""Who takes part when: workers that die, and workers that join."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor

from hf_decentral.errors import out_of_range
from hf_decentral.errors.cluster import never_meet
from hf_decentral.errors.topology import nobody_left
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.topology.combinators import without

Neighbours = Sequence[Sequence[int]]
"""For each worker those with whom it may talk, ascending."""


def neighbours(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """For each worker all whom it hears, or who hear it, in any round; where ever new rounds come, in the
    first of them."""
    found: list[set[int]] = [set() for _ in range(topology.workers)]
    for round in topology.repeated() or topology.rounds():
        for i in range(round.workers):
            for j in round.senders(i):
                found[i].add(j)
                found[j].add(i)
    return tuple(tuple(sorted(each)) for each in found)


def partners(neighbours: Neighbours, split: bool = False) -> list[list[int]]:
    """With whom each worker begins averages in pairs.

    Args:
        neighbours: of each worker.
        split: only odd workers begin any, and with even ones only.

    Raises:
        TopologyError: these pairs do not connect all workers.
    """
    pairs = [
        [j for j in near if j != i and not (split and (i - j) % 2 == 0)] for i, near in enumerate(neighbours)
    ]
    reached, queue = {0}, [0]
    while queue:
        for j in pairs[queue.pop()]:
            if j not in reached:
                reached.add(j)
                queue.append(j)
    if len(reached) < len(pairs):
        raise never_meet(sorted(set(range(len(pairs))) - reached), split)
    return [[] if split and i % 2 == 0 else near for i, near in enumerate(pairs)]


@dataclass(frozen=True)
class Members:
    """Who takes part when. Times are whatever the run counts in: steps in lock step, else seconds.

    Attributes:
        workers: number of workers, ``W``, those that join later included.
        deaths: when a worker begins to take no part.
        joins: when it begins to take part; it was absent before, from the start or from its death on.

    Raises:
        SettingsError: a worker that does not exist, or a time that cannot be meant.
        TopologyError: at some time nobody takes part.
    """

    workers: int
    deaths: Mapping[int, float] = field(default_factory=dict)
    joins: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, times in (("deaths", self.deaths), ("joins", self.joins)):
            if not all(0 <= worker < self.workers for worker in times):
                advice = "workers are numbered from 0; those that join later are counted too"
                raise out_of_range(name, dict(times), f"workers of 0 to {self.workers - 1}", advice)
            if not all(0 <= time < math.inf for time in times.values()):
                raise out_of_range(name, dict(times), "times of 0 or more", "leave out who never does")
        for worker, time in self.deaths.items():
            if self.joins.get(worker) == time:
                advice = "let it join later than it dies, or die later than it joins"
                raise out_of_range("joins", dict(self.joins), f"not time {time} for worker {worker}", advice)
        for time in (0, *self.times):
            if len(self.absent(time)) == self.workers:
                raise nobody_left(self.workers)

    @property
    def times(self) -> tuple[float, ...]:
        """When anything changes, ascending."""
        return tuple(sorted({*self.deaths.values(), *self.joins.values()}))

    def absent(self, time: float) -> frozenset[int]:
        """The workers that take no part at some time."""
        return frozenset(
            worker for worker in {*self.deaths, *self.joins} if not self._takes_part(worker, time)
        )

    def joining(self, time: float) -> tuple[int, ...]:
        """The workers that begin to take part at exactly this time, ascending."""
        return tuple(sorted(worker for worker, joins in self.joins.items() if joins == time))

    def present(self, topology: Topology) -> Topology:
        """The rounds of a topology among those who take part in a step; the mean of these is kept.

        Args:
            topology: for all workers; its steps are the times of this.
        """
        if not self.times:
            return topology
        period = topology.period

        @lru_cache(maxsize=2 * (period or 4))
        def mended(step: int, absent: frozenset[int]) -> Round:
            return without(absent, topology)(step) if absent else topology(step)

        def at(step: int) -> Round:
            return mended(step if period is None else step % period, self.absent(step))

        gone = dict.fromkeys(self.absent(time) for time in (0, *self.times))
        return replace(
            topology,
            name=f"present(deaths={dict(self.deaths)}, joins={dict(self.joins)}, {topology.name})",
            period=None,
            at=at,
            phases=tuple(without(absent, topology) for absent in gone),
        )

    def _takes_part(self, worker: int, time: float) -> bool:
        dies, joins = self.deaths.get(worker, math.inf), self.joins.get(worker, -math.inf)
        if joins == -math.inf or dies < joins:
            return time < dies or time >= joins > -math.inf
        return joins <= time < dies


def givers(worker: int, neighbours: Neighbours, absent: Collection[int]) -> tuple[int, ...]:
    """From whom a worker that joins takes its parameters: those of its neighbours who take part, or, where
    none does, all who take part.

    Args:
        worker: the one that joins; it is not among them.
        neighbours: of each worker.
        absent: the workers that take no part.
    """
    gone = {*absent, worker}
    near = tuple(j for j in neighbours[worker] if j not in gone)
    return near or tuple(j for j in range(len(neighbours)) if j not in gone)


@torch.no_grad()
def welcome_(x: Tensor, worker: int, givers: Sequence[int]) -> Tensor:
    """Let a worker that joins begin with the mean of others, in place.

    Args:
        x: the parameters of all workers, ``[W, ...]``; nothing of them may be under way.
        worker: the one that joins.
        givers: whose mean it takes; of none of them it keeps its own.
    """
    if givers:
        torch.mean(x[list(givers)], 0, out=x[worker])
    return x
