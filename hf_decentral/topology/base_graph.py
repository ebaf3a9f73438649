"""Base-2 graphs: the exact mean after few rounds with one peer each, for any number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Hosts, Topology

Trade = tuple[int, int, float]
"""Two nodes and the weight with which each takes the other's numbers."""


def base_graph(workers: int, hosts: Hosts = None) -> Topology:
    """The Base-2 graph (Takezawa et al. 2023, arXiv 2305.11420): one peer a round, exact after a period.

    The hosts do not matter. A period has at most ``2 log2(workers) + 2`` rounds.
    """
    rounds = [_round(trades, workers) for trades in trades_of(list(range(workers)))]
    return Topology.cycle("base_graph", rounds or [Round.identity(workers)])


def trades_of(nodes: Sequence[int]) -> list[list[Trade]]:
    """For each round the disjoint trades whose product over all rounds is the mean over the nodes."""
    direct = _split(nodes)
    blocks = len(nodes) & -len(nodes)  # the largest power of two that divides the number of nodes
    if blocks in (1, len(nodes)):
        return direct
    size = len(nodes) // blocks
    inside = [_split(nodes[b * size : (b + 1) * size]) for b in range(blocks)]
    across = [_hypercube(nodes[i::size]) for i in range(size)]
    stepwise = _together(inside) + _together(across)
    return min(direct, stepwise, key=len)


def _split(nodes: Sequence[int]) -> list[list[Trade]]:
    """Trades for any number of nodes, in sets whose sizes are powers of two, largest first.

    Each set takes its own mean. Then, one after the other, a set trades with all later ones so that its mean
    becomes the mean of all, which it spreads within itself while the later ones go on.
    """
    sets, begin = [], 0
    for bit in reversed(range(len(nodes).bit_length())):
        if len(nodes) >> bit & 1:
            sets.append(nodes[begin : begin + (1 << bit)])
            begin += 1 << bit
    rounds = _together([_hypercube(group) for group in sets])
    tails: list[list[list[Trade]]] = []
    for k, group in enumerate(sets[:-1]):
        later = [node for other in sets[k + 1 :] for node in other]
        weight = len(group) / (len(group) + len(later))
        trades = [(i, j, weight) for i, j in zip(later, group, strict=False)]
        tails.append([[]] * k + [trades, *_hypercube(group)])
    return rounds + _together(tails)


def _hypercube(nodes: Sequence[int]) -> list[list[Trade]]:
    """Halves trade with halves; the number of nodes is a power of two."""
    strides = [1 << bit for bit in range(len(nodes).bit_length() - 1)]
    return [[(nodes[i], nodes[i ^ s], 0.5) for i in range(len(nodes)) if not i & s] for s in strides]


def _together(parts: Sequence[list[list[Trade]]]) -> list[list[Trade]]:
    """Disjoint sets of nodes go through their rounds at the same time."""
    return [[trade for trades in same for trade in trades] for same in zip_longest(*parts, fillvalue=[])]


def _round(trades: Sequence[Trade], workers: int) -> Round:
    rows: list[Row] = [((i, 1.0),) for i in range(workers)]
    for i, j, weight in trades:
        rows[i] = tuple(sorted(((i, 1 - weight), (j, weight))))
        rows[j] = tuple(sorted(((j, 1 - weight), (i, weight))))
    return Round(tuple(rows))
