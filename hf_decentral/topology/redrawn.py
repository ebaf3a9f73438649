"""Topologies that are drawn anew in every round, from a seed and the number of the step."""

from __future__ import annotations

from functools import lru_cache

from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology
from hf_decentral.topology.drawn import permutation
from hf_decentral.topology.ring import ring

_KEPT = 8  # a step asks for its round several times


def random_matching(workers: int, hosts: Hosts = None, seed: int = 0) -> Topology:
    """In every round all workers pair up at random and each pair takes its mean; of an odd number one idles.

    The hosts do not matter. A round leaves ``(n - 2) / (2 (n - 1))`` of the squared differences on average
    over the draws, for an even number ``n`` of workers.
    """

    @lru_cache(maxsize=_KEPT)
    def at(step: int) -> Round:
        order = permutation(workers, "matching", seed, step)
        return Round.average(zip(order[::2], order[1::2], strict=False), workers)

    return Topology("random_matching", workers, None, at)


def random_ring(workers: int, hosts: Hosts = None, seed: int = 0) -> Topology:
    """A ring of thirds whose order is redrawn in every round (randomized mixing, arXiv 2002.01119).

    The hosts do not matter. A round leaves ``(n / 3 - 1) / (n - 1)`` of the squared differences on average
    over the draws, however many workers there are; a fixed ring leaves ever more.
    """
    fixed = ring(workers)(0)

    @lru_cache(maxsize=_KEPT)
    def at(step: int) -> Round:
        order = permutation(workers, "ring", seed, step)
        rows = list(fixed.rows)
        for place, row in enumerate(fixed.rows):
            rows[order[place]] = tuple(sorted((order[j], weight) for j, weight in row))
        return Round(tuple(rows))

    return Topology("random_ring", workers, None, at)
