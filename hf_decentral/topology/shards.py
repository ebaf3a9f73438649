"""Averages over two hosts that travel by shards.

Where all workers of two hosts, ``m`` on each, take the same part of the mean of their own host and of the
other's, none needs to send all its parameters over the network: a reduce-scatter inside the host leaves
worker ``k`` with the ``k``-th part of the host's mean, it swaps this ``1/m`` with worker ``k`` of the other
host, and an all-gather inside brings the parts together. One copy of the parameters leaves a host, not ``m``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hf_decentral.rounds import Round
from hf_decentral.topology.base import Group, Topology, hosts_members


@dataclass(frozen=True)
class Shards:
    """How one worker takes part.

    Attributes:
        inside: the workers of its host, ascending; the ``k``-th has the ``k``-th shard.
        across: those of the other host; empty where the host takes its own mean in a round that is no mean of
            groups for others, so that no collective is there for it.
        weight: weight of the other host's mean; the own one's is the rest.
    """

    inside: Group
    across: Group
    weight: float


def by_shards(round: Round, hosts: Iterable[int]) -> dict[int, Shards]:
    """The workers that can exchange by shards; all of a host and of its partner can, or none.

    Args:
        round: who hears whom.
        hosts: the host of each worker.
    """
    members = hosts_members(round.workers, tuple(hosts))
    host = {worker: number for number, group in enumerate(members) for worker in group}
    found: dict[int, Shards] = {}
    for i, inside in enumerate(members):
        others = {host[sender] for sender, _ in round.rows[inside[0]]} - {i}
        if len(inside) < 2 or len(others) > 1:
            continue
        across: Group = members[others.pop()] if others else ()
        if not across and round.groups is None and _even(round, inside, ()):
            found.update((worker, Shards(inside, (), 0.0)) for worker in inside)
        if len(across) == len(inside) and _even(round, inside, across) and _even(round, across, inside):
            weight = dict(round.rows[inside[0]])[across[0]] * len(across)
            found.update((worker, Shards(inside, across, weight)) for worker in inside)
    return found


def _even(round: Round, inside: Group, across: Group) -> bool:
    """Whether all of ``inside`` sum all of both hosts, and those of one host with one weight."""
    row = round.rows[inside[0]]
    weights = dict(row)
    return (
        all(round.rows[worker] == row for worker in inside)
        and weights.keys() == {*inside, *across}
        and all(len({weights[worker] for worker in group}) <= 1 for group in (inside, across))
    )


def sharded(topology: Topology) -> dict[str, dict[int, Shards]]:
    """What :func:`by_shards` finds in the rounds of a topology that repeat, by the key of the round."""
    found: dict[str, dict[int, Shards]] = {}
    for phase in topology.phases:
        found.update(sharded(phase))
    if topology.hosts is not None and topology.period is not None:
        for round in dict.fromkeys(topology.rounds()):
            shards = by_shards(round, topology.hosts)
            if shards:
                found[round.key] = shards
    return found
