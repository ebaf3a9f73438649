"""A topology is a function from the number of a step to the round of that step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from hf_decentral.rounds import Round

Hosts = Sequence[int] | None
"""The host of each worker as a plain number; None stands for one worker a host."""

Group = tuple[int, ...]


def hosts_members(workers: int, hosts: Hosts) -> list[Group]:
    """The workers of each host, hosts in the order of their first worker."""
    found: dict[int, list[int]] = {}
    for worker, host in enumerate(hosts if hosts is not None else range(workers)):
        found.setdefault(host, []).append(worker)
    return [tuple(group) for group in found.values()]


def shifted(weights: Mapping[int, float], workers: int) -> Round:
    """The round in which every worker ``i`` hears ``i + shift`` with the weight of that shift.

    Args:
        weights: the weight of each shift, which all lead to different workers; shift 0 is the own weight.
        workers: number of workers; numbers of workers are taken modulo it.
    """
    return Round(
        tuple(
            tuple(sorted(((i + shift) % workers, weight) for shift, weight in weights.items()))
            for i in range(workers)
        )
    )


def nearest(workers: int, serves: Callable[[int], bool]) -> list[int]:
    """The next numbers of workers below, if more than one, and above that a topology serves."""
    below = next((n for n in range(workers - 1, 1, -1) if serves(n)), None)
    above = next(n for n in count(workers + 1) if serves(n))
    return [above] if below is None else [below, above]


@dataclass(frozen=True)
class Topology:
    """Who averages with whom, step by step. A pure value: no process is needed to make or draw one.

    Attributes:
        name: the name under which it stands in the table.
        workers: number of workers, ``W``.
        period: the rounds repeat after so many steps; None if they never do.
        at: the round of a step, 0, 1, 2, ...
        phases: the topologies of which one that never repeats is made, for what must be opened beforehand.
        hosts: the host of each worker where averages over two hosts travel by shards
            (:mod:`hf_decentral.topology.shards`); None: every round travels as its weights say.
        least: a round takes place unless the consensus distance is below this; 0: always.
        push: the weights are for push-sum: columns sum to one, rows need not.
    """

    name: str
    workers: int
    period: int | None
    at: Callable[[int], Round] = field(repr=False, compare=False)
    phases: tuple[Topology, ...] = field(default=(), repr=False, compare=False)
    hosts: tuple[int, ...] | None = None
    least: float = 0.0
    push: bool = False

    def __call__(self, step: int) -> Round:
        """The round of a step."""
        return self.at(step)

    @staticmethod
    def cycle(name: str, rounds: Sequence[Round], hosts: Hosts = None, push: bool = False) -> Topology:
        """The topology that repeats the given rounds for ever; the rest as in the attributes."""
        kept = tuple(rounds)
        where = None if hosts is None else tuple(hosts)
        return Topology(
            name, kept[0].workers, len(kept), lambda step: kept[step % len(kept)], hosts=where, push=push
        )

    def repeated(self) -> tuple[Round, ...] | None:
        """The rounds that come again and again, each once; None where ever new ones come."""
        if self.period is not None:
            return tuple(dict.fromkeys(self.rounds()))
        found: dict[Round, None] = {}
        for phase in self.phases:
            rounds = phase.repeated()
            if rounds is None:
                return None
            found.update(dict.fromkeys(rounds))
        return tuple(found) or None

    def rounds(self, count: int | None = None) -> tuple[Round, ...]:
        """The first ``count`` rounds; by default one period, or 64 rounds where there is none."""
        return tuple(self.at(step) for step in range(count or self.period or 64))
