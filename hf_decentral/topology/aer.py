"""The alternating exponential ring: averages inside hosts and between pairs of hosts take turns."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Hosts, Topology
from hf_decentral.topology.base_graph import Trade, trades_of

Members = list[tuple[int, ...]]


def aer(workers: int, hosts: Hosts = None) -> Topology:
    """The alternating exponential ring (From Promise to Practice, arXiv 2410.11998).

    Hosts are paired at distances 1, 2, 4, ...; each distance takes two rounds, in one of which a pair averages
    over both hosts and in the other each host for itself, every second pair the other way round, so that in
    every round half of the pairs use the network. The mean is exact after a period of ``2 log2(hosts)`` where
    the number of hosts is a power of two and all hosts are of one size. For other numbers of equal hosts the
    hosts follow a Base-2 graph, which is exact too; hosts of unequal size are paired in the same manner
    with weights that keep the mean, and approach it.
    """
    members = _members(workers, hosts)
    count = len(members)
    if count == 1:
        return Topology.cycle("aer", [Round.average(members, workers)])
    even = len({len(group) for group in members}) == 1
    if even and count & (count - 1):
        rounds = [_between(trades, members, workers) for trades in trades_of(range(count))]
    else:
        rounds = [Round.average(groups, workers) for groups in _alternating(members)]
    return Topology.cycle("aer", rounds)


def _members(workers: int, hosts: Hosts) -> Members:
    """The workers of each host, hosts in the order of their first worker."""
    found: dict[int, list[int]] = {}
    for worker, host in enumerate(hosts if hosts is not None else range(workers)):
        found.setdefault(host, []).append(worker)
    return [tuple(group) for group in found.values()]


def _alternating(members: Members) -> list[list[tuple[int, ...]]]:
    """The groups of each round. A host that finds no partner averages for itself in both rounds."""
    rounds, pairs = [], 0
    for bit in range((len(members) - 1).bit_length()):
        first: list[tuple[int, ...]] = []
        second: list[tuple[int, ...]] = []
        used: set[int] = set()
        for j in range(len(members)):
            other = (j + (1 << bit)) % len(members)
            if j in used:
                continue
            if other in used:
                first.append(members[j])
                second.append(members[j])
                continue
            used |= {j, other}
            apart, union = [members[j], members[other]], [members[j] + members[other]]
            a, b = (apart, union) if pairs % 2 == 0 else (union, apart)
            first += a
            second += b
            pairs += 1
        rounds += [first, second]
    return rounds


def _between(trades: Sequence[Trade], members: Members, workers: int) -> Round:
    """``kron(M, J_m)``: hosts of ``m`` workers each trade their means."""
    share = 1.0 / len(members[0])
    rows: list[Row] = [()] * workers
    weights: list[dict[int, float]] = [{h: 1.0} for h in range(len(members))]
    for i, j, weight in trades:
        weights[i], weights[j] = {i: 1 - weight, j: weight}, {j: 1 - weight, i: weight}
    for host, heard in enumerate(weights):
        row = tuple(sorted((worker, w * share) for h, w in heard.items() for worker in members[h]))
        for worker in members[host]:
            rows[worker] = row
    return Round(tuple(rows))
