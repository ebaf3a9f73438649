"""Exact means inside hosts, and gossip between hosts."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.rounds import Round, Row
from hf_decentral.topology.aer import pairs_at
from hf_decentral.topology.base import Group, Hosts, Topology, hosts_members
from hf_decentral.topology.base_graph import Trade, trades_of


def hierarchical(workers: int, hosts: Hosts = None) -> Topology:
    """Hosts gossip with one other host a round; inside, a host is always of one mind.

    With hosts of one size ``m`` the weights are ``kron(M, J_m)``: ``M`` is a round of the Base-2 graph among
    the hosts (:mod:`hf_decentral.topology.base_graph`) and ``J_m`` the mean inside. For ``2^r`` hosts those
    are means over pairs of hosts, ``j`` and ``j ^ 1``, ``j ^ 2``, ``j ^ 4``, ..., exact after ``r`` rounds;
    other numbers of hosts are exact after a period of the Base-2 graph. Such a round travels by shards, as
    :mod:`hf_decentral.topology.shards` tells, and costs a host one copy of the parameters on the network.

    Hosts of unequal sizes pair up on a ring at distances 1, 2, 4, ..., and each pair takes the mean of its
    workers; a host without a partner takes its own. The mean is kept, and approached; a pair of unequal hosts
    has no shards to swap, and takes its mean by one collective. One worker a host (``hosts=None``) is the
    plain Base-2 graph.
    """
    members = hosts_members(workers, hosts)
    count = len(members)
    if count == 1:
        return Topology.cycle("hierarchical", [Round.average(members, workers)])
    if len({len(group) for group in members}) == 1:
        rounds = [_traded(trades, members, workers) for trades in trades_of(range(count))]
    else:
        rounds = [_united(members, 1 << bit, workers) for bit in range((count - 1).bit_length())]
    return Topology.cycle("hierarchical", rounds, hosts)


def _traded(trades: Sequence[Trade], members: list[Group], workers: int) -> Round:
    """``kron(M, J_m)`` for the trades ``M`` between hosts of ``m`` workers."""
    rows: list[Row] = [((worker, 1.0),) for worker in range(workers)]
    each = len(members[0])
    weights = {host: {host: 1.0} for host in range(len(members))}
    for i, j, weight in trades:
        weights[i], weights[j] = {i: 1 - weight, j: weight}, {j: 1 - weight, i: weight}
    for host, heard in weights.items():
        row = tuple(sorted((worker, w / each) for other, w in heard.items() for worker in members[other]))
        for worker in members[host]:
            rows[worker] = row
    return Round(tuple(rows))


def _united(members: list[Group], distance: int, workers: int) -> Round:
    pairs = pairs_at(distance, len(members))
    paired = {host for pair in pairs for host in pair}
    alone = [group for host, group in enumerate(members) if host not in paired]
    return Round.average([*(members[i] + members[j] for i, j in pairs), *alone], workers)
