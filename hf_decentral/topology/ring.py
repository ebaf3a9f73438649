"""A static ring: a third from each side, a third from oneself."""

from __future__ import annotations

from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology, shifted


def ring(workers: int, hosts: Hosts = None) -> Topology:
    """Worker ``i`` hears ``i - 1`` and ``i + 1``; with fewer than four workers that is the complete graph."""
    if workers < 4:
        return Topology.cycle("ring", [Round.average([range(workers)], workers)])
    return Topology.cycle("ring", [shifted({-1: 1 / 3, 0: 1 / 3, 1: 1 / 3}, workers)])
