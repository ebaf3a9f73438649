"""A static grid whose edges are joined."""

from __future__ import annotations

from math import isqrt

from hf_decentral.errors.topology import cannot_serve
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology, nearest


def torus(workers: int, hosts: Hosts = None) -> Topology:
    """A fifth from each of four neighbours on a grid of ``a x b`` workers, as near to a square as it can be.

    Worker ``i`` stands in row ``i // b`` and column ``i % b``; the hosts do not matter. The eigenvalues are
    ``(1 + 2 cos(2 pi k / a) + 2 cos(2 pi l / b)) / 5``, the smallest near -3/5: D2 diverges on it.

    Raises:
        TopologyError: the workers fill no grid with sides of 3 or more.
    """
    if workers == 1:
        return Topology.cycle("torus", [Round.identity(1)])
    a, b = _sides(workers)
    if a == 1:
        raise cannot_serve("torus", workers, "a x b workers, a and b 3 or more", nearest(workers, serves))
    rows = []
    for i in range(workers):
        row, column = divmod(i, b)
        beside = [row * b + (column + 1) % b, row * b + (column - 1) % b]
        above = [(row + 1) % a * b + column, (row - 1) % a * b + column]
        rows.append(tuple((j, 1 / 5) for j in sorted([i, *beside, *above])))
    return Topology.cycle("torus", [Round(tuple(rows))])


def serves(workers: int) -> bool:
    """Whether so many workers fill a grid."""
    return workers == 1 or _sides(workers)[0] > 1


def _sides(workers: int) -> tuple[int, int]:
    """``a <= b`` with ``a b = workers`` and ``a`` as large as it can be; 1 and all where ``a`` is below 3."""
    sides = (a for a in range(isqrt(workers), 2, -1) if workers % a == 0)
    a = next(sides, 1)
    return a, workers // a
