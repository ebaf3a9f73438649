"""Directed exponential graphs (Ying et al. 2021, arXiv 2110.13363): neighbours at distances 1, 2, 4, ..."""

from __future__ import annotations

from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology, shifted


def one_peer_exponential(workers: int, hosts: Hosts = None) -> Topology:
    """In round ``t`` worker ``i`` hears ``i - 2^t`` with weight one half.

    The hosts do not matter. The period is ``ceil(log2 W)``; it ends in the exact mean where ``W`` is a power
    of two.
    """
    rounds = [shifted({0: 0.5, -distance: 0.5}, workers) for distance in _distances(workers)]
    return Topology.cycle("one_peer_exponential", rounds or [Round.identity(workers)])


def static_exponential(workers: int, hosts: Hosts = None) -> Topology:
    """In every round worker ``i`` hears all ``c`` workers ``i - 2^t`` at once, each with ``1 / (c + 1)``.

    The hosts do not matter. ``c = ceil(log2 W)``; for even ``W`` a round leaves ``1 - 2 / (c + 1)`` of the
    differences at worst.
    """
    distances = _distances(workers)
    weight = 1 / (len(distances) + 1)
    round = shifted({0: weight, **{-distance: weight for distance in distances}}, workers)
    return Topology.cycle("static_exponential", [round])


def _distances(workers: int) -> list[int]:
    return [2**t for t in range((workers - 1).bit_length())]
