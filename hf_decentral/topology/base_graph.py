"""Base-(k+1) graphs: the exact mean after few rounds with at most k peers each, for any number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from hf_decentral.errors import out_of_range
from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Group, Hosts, Topology

Trade = tuple[int, int, float]
"""Two nodes and the weight with which each takes the other's numbers."""


class _Step(NamedTuple):
    """What happens at once: groups take their mean, and nodes in none of them trade."""

    groups: tuple[Group, ...] = ()
    trades: tuple[Trade, ...] = ()


_NOTHING = _Step()


def base_graph(workers: int, hosts: Hosts = None, k: int = 1) -> Topology:
    """The Base-(k+1) graph (Takezawa et al. 2023, arXiv 2305.11420): at most ``k`` peers a round, exact after
    a period.

    The hosts do not matter. A period has at most ``2 log(workers) / log(k + 1) + 2`` rounds.

    Args:
        workers: number of workers.
        hosts: of no effect.
        k: most peers of a worker in a round; with ``k >= workers - 1`` it is the complete graph.

    Raises:
        SettingsError: ``k`` is below 1.
    """
    if k < 1:
        raise out_of_range("k", k, "1 or more", "base_graph, which is base_graph(1), has one peer a round")
    rounds = [_round(step, workers) for step in _steps(range(workers), k)]
    return Topology.cycle("base_graph", rounds or [Round.identity(workers)])


def trades_of(nodes: Sequence[int]) -> list[list[Trade]]:
    """The disjoint trades of each round of the Base-2 graph, whose product is the mean over the nodes."""
    return [[*((i, j, 0.5) for i, j in step.groups), *step.trades] for step in _steps(nodes, 1)]


def _steps(nodes: Sequence[int], k: int) -> list[_Step]:
    """Where the number of nodes has a smooth part ``p`` and a rest ``q``, either all nodes at once, or ``p``
    blocks of ``q`` nodes each for itself and then across the blocks: whatever is shorter."""
    direct = _split(nodes, k)
    rest = _rest(len(nodes), k)
    blocks = len(nodes) // rest
    if blocks == 1 or rest == 1:
        return direct
    inside = [_split(nodes[b * rest : (b + 1) * rest], k) for b in range(blocks)]
    across = [_hypercube(nodes[i::rest], k) for i in range(rest)]
    return min(direct, _together(inside) + _together(across), key=len)


def _split(nodes: Sequence[int], k: int) -> list[_Step]:
    """Any number of nodes, in sets of ``a (k + 1)^p``, the digits ``a`` those of their number, largest first.

    Each set takes its own mean. Then, one after the other, a set trades with all later ones so that its mean
    becomes the mean of all: a later node with one node in each of the ``a`` parts of the set, which then
    spread it within themselves while the later ones go on.
    """
    if _rest(len(nodes), k) == 1:
        return _hypercube(nodes, k)
    sets: list[list[Sequence[int]]] = []  # each the list of its parts
    begin, size = 0, 1
    while size * (k + 1) <= len(nodes):
        size *= k + 1
    while size:
        digit = (len(nodes) - begin) // size
        parts = [nodes[begin + a * size : begin + (a + 1) * size] for a in range(digit)]
        sets += [parts] if parts else []
        begin += digit * size
        size //= k + 1
    own = [_hypercube([node for part in parts for node in part], k) for parts in sets]
    tails: list[list[_Step]] = []
    later = len(nodes)
    for number, parts in enumerate(sets[:-1]):
        every = later  # this set and all later ones
        later -= sum(map(len, parts))
        others = nodes[len(nodes) - later :]
        weight = (every - later) / (every * len(parts))
        trades = tuple((i, j, weight) for part in parts for i, j in zip(others, part, strict=False))
        spread = _together([_hypercube(part, k) for part in parts])
        tails.append([_NOTHING] * number + [_Step(trades=trades), *spread])
    return _together(own) + _together(tails)


def _hypercube(nodes: Sequence[int], k: int) -> list[_Step]:
    """One round a factor of at most ``k + 1``: groups of so many nodes, at a stride that grows with them."""
    factors, left = [], len(nodes)
    for factor in range(min(k + 1, left), 1, -1):
        while left % factor == 0:
            factors.append(factor)
            left //= factor
    steps, stride = [], 1
    for factor in sorted(factors):
        first = [i for i in range(len(nodes)) if i // stride % factor == 0]
        groups = tuple(tuple(nodes[i + d * stride] for d in range(factor)) for i in first)
        steps.append(_Step(groups))
        stride *= factor
    return steps


def _rest(number: int, k: int) -> int:
    """What is left of a number without its prime factors up to ``k + 1``."""
    for factor in range(2, min(k + 1, number) + 1):
        while number % factor == 0:
            number //= factor
    return number


def _together(parts: Sequence[list[_Step]]) -> list[_Step]:
    """Disjoint sets of nodes go through their rounds at the same time."""
    return [
        _Step(
            tuple(group for step in same for group in step.groups),
            tuple(trade for step in same for trade in step.trades),
        )
        for same in zip_longest(*parts, fillvalue=_NOTHING)
    ]


def _round(step: _Step, workers: int) -> Round:
    rows: list[Row] = list(Round.average(step.groups, workers).rows)
    heard: dict[int, dict[int, float]] = {}
    for i, j, weight in step.trades:
        heard.setdefault(i, {})[j] = weight
        heard.setdefault(j, {})[i] = weight
    for i, others in heard.items():
        rows[i] = tuple(sorted({i: 1 - sum(others.values()), **others}.items()))
    return Round(tuple(rows))
