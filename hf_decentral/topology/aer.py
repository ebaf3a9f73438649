"""The alternating exponential ring: averages inside hosts and between pairs of hosts take turns."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Group, Hosts, Topology, hosts_members
from hf_decentral.topology.base_graph import Trade, trades_of


def aer(workers: int, hosts: Hosts = None) -> Topology:
    """The alternating exponential ring (From Promise to Practice, arXiv 2410.11998).

    Hosts are paired at distances 1, 2, 4, ... Each distance takes two rounds: in one of them a pair averages
    over both hosts, in the other each host for itself, and every second pair does it the other way round, so
    that with four hosts and more every round has half of the pairs on the network.

    With ``2^r`` hosts of one size the mean is exact after a period, ``2 r`` rounds. Other numbers of hosts of
    one size follow a Base-2 graph, whose period ends in the exact mean too. Hosts of unequal sizes are paired
    as above, and approach the mean.
    """
    members = hosts_members(workers, hosts)
    count = len(members)
    if count == 1:
        return Topology.cycle("aer", [Round.average(members, workers)])
    even = len({len(group) for group in members}) == 1
    if even and count & (count - 1):
        rounds = [_traded(trades, members, workers) for trades in trades_of(range(count))]
    else:
        rounds = [Round.average(groups, workers) for groups in _alternating(members)]
    return Topology.cycle("aer", rounds)


def _alternating(members: list[Group]) -> list[list[Group]]:
    """The groups of each round. A host that finds no partner averages for itself in both rounds."""
    rounds: list[list[Group]] = []
    number = 0  # pairs are counted on from distance to distance
    for bit in range((len(members) - 1).bit_length()):
        pairs = pairs_at(1 << bit, len(members))
        paired = {host for pair in pairs for host in pair}
        first = [group for host, group in enumerate(members) if host not in paired]
        second = list(first)
        for i, j in pairs:
            alone, union = [members[i], members[j]], [members[i] + members[j]]
            first += alone if number % 2 == 0 else union
            second += union if number % 2 == 0 else alone
            number += 1
        rounds += [first, second]
    return rounds


def pairs_at(distance: int, count: int) -> list[tuple[int, int]]:
    """As many disjoint pairs ``(j, j + distance)`` as a ring of ``count`` hosts has, in order of ``j``.

    Steps of one distance close to cycles. Each is walked from its smallest host; a cycle of odd length leaves
    its last host alone. For ``2^r`` hosts these are the pairs of the paper, ``j`` and ``j ^ distance``.
    """
    pairs: list[tuple[int, int]] = []
    seen: set[int] = set()
    for start in range(count):
        cycle, host = [], start
        while host not in seen:
            seen.add(host)
            cycle.append(host)
            host = (host + distance) % count
        pairs += zip(cycle[::2], cycle[1::2], strict=False)
    return sorted(pairs)


def _traded(trades: Sequence[Trade], members: list[Group], workers: int) -> Round:
    """A round of a Base-2 graph whose nodes are hosts of ``m`` workers.

    Equal trades are a mean over both hosts, as always. In an unequal one worker ``k`` of a host trades with
    worker ``k`` of the other, so that each sends its parameters once and not to all ``m`` workers there. The
    period stays exact, since its first round has only equal trades: from there on the hosts are of one mind
    within, up to what they learn meanwhile.
    """
    if all(weight == 0.5 for _, _, weight in trades):
        busy = {host for i, j, _ in trades for host in (i, j)}
        alone = [group for host, group in enumerate(members) if host not in busy]
        return Round.average([*(members[i] + members[j] for i, j, _ in trades), *alone], workers)
    rows: list[Row] = [((worker, 1.0),) for worker in range(workers)]
    for i, j, weight in trades:
        for a, b in zip(members[i], members[j], strict=True):
            rows[a] = tuple(sorted(((a, 1 - weight), (b, weight))))
            rows[b] = tuple(sorted(((b, 1 - weight), (a, weight))))
    return Round(tuple(rows))
