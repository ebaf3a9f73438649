"""A static star."""

from __future__ import annotations

from hf_decentral.topology.base import Hosts, Topology
from hf_decentral.topology.graph import metropolis


def star(workers: int, hosts: Hosts = None) -> Topology:
    """Worker 0 and each other worker hear each other with weight ``1 / W``, the others keep the rest
    (Metropolis weights). The hosts do not matter. Second eigenvalue ``1 - 1 / W``."""
    return Topology.cycle("star", [metropolis(workers, ((0, i) for i in range(1, workers)))])
