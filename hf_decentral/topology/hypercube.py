"""The static hypercube."""

from __future__ import annotations

from hf_decentral.errors.topology import cannot_serve
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology, nearest


def hypercube(workers: int, hosts: Hosts = None) -> Topology:
    """``1 / (r + 1)`` from oneself and from each of the ``r`` workers whose number differs in one bit.

    There are ``2^r`` workers; the hosts do not matter. Second eigenvalue ``1 - 2 / (r + 1)``.

    Raises:
        TopologyError: the number of workers is no power of two.
    """
    if not serves(workers):
        raise cannot_serve("hypercube", workers, "a power of two of workers", nearest(workers, serves))
    bits = [1 << bit for bit in range(workers.bit_length() - 1)]
    weight = 1 / (len(bits) + 1)
    rows = [tuple((j, weight) for j in sorted([i, *(i ^ bit for bit in bits)])) for i in range(workers)]
    return Topology.cycle("hypercube", [Round(tuple(rows))])


def serves(workers: int) -> bool:
    """Whether it is a power of two."""
    return workers & (workers - 1) == 0
