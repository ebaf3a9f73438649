"""The directed one-peer exponential graph."""

from __future__ import annotations

from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology


def one_peer_exponential(workers: int, hosts: Hosts = None) -> Topology:
    """In round ``t`` worker ``i`` hears ``i - 2^t`` with weight one half (Ying et al., arXiv 2110.13363).

    The hosts do not matter. The period is ``ceil(log2 W)``; it ends in the exact mean where ``W`` is a power
    of two.
    """
    shifts = [2**t for t in range((workers - 1).bit_length())]
    rounds = [
        Round(tuple(tuple(sorted(((i, 0.5), ((i - shift) % workers, 0.5)))) for i in range(workers)))
        for shift in shifts
    ]
    return Topology.cycle("one_peer_exponential", rounds or [Round.identity(workers)])
