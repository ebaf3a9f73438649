"""A static ring: a third from each side, a third from oneself."""

from __future__ import annotations

from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology


def ring(workers: int, hosts: Hosts = None) -> Topology:
    """Worker ``i`` hears ``i - 1`` and ``i + 1``; with fewer than four workers that is the complete graph."""
    if workers < 4:
        return Topology.cycle("ring", [Round.average([range(workers)], workers)])
    rows = [tuple(sorted((j % workers, 1 / 3) for j in (i - 1, i, i + 1))) for i in range(workers)]
    return Topology.cycle("ring", [Round(tuple(rows))])
