"""How long the exchanges of a round take on the links of a cluster.

With latency ``L`` and ``B`` bytes per second, each of ``k`` messages of ``P`` bytes that share a link takes
``L + k P / B``, and an all-reduce among ``q`` workers ``2 (q - 1) (L + P / (q B))`` on a ring, or the time
on a tree where that is less, as libraries choose: for small messages among many. A link carries both
directions at once, unless the cluster is half duplex. The derivation is ours; see
:mod:`hf_decentral.cluster.clock`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hf_decentral.cluster.draws import Vector
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.rounds import Round
from hf_decentral.topology.shards import Shards
from hf_decentral.topology.traffic import sent

Indices = NDArray[np.int64]
Ways = tuple[tuple[float, float], tuple[float, float]]
"""Latency and seconds per byte, on a ring and on a tree."""
_BITS = 8


@dataclass(frozen=True)
class Messages:
    """The messages of a round, those to one worker next to each other.

    Attributes:
        senders: of each message, ``[E]``.
        receivers: of each message, ``[E]``.
        starts: where the messages to each of ``hearers`` begin, ``[H]``.
        hearers: the workers that receive any, ``[H]``.
        latency: seconds that a message takes whatever its size, ``[E]``.
        per_byte: seconds for each byte on top, ``[E]``.
    """

    senders: Indices
    receivers: Indices
    starts: Indices
    hearers: Indices
    latency: Vector
    per_byte: Vector


@dataclass(frozen=True)
class Groups:
    """The collectives of a round, in each of which all wait for all.

    Attributes:
        members: the workers of all groups, ``[M]``.
        starts: where the workers of each group begin, ``[G]``.
        sizes: workers of each group, ``[G]``.
        latency: seconds that a collective takes whatever its size, on a ring and on a tree, ``[G, 2]``.
        per_byte: seconds for each byte of the parameters on top, ``[G, 2]``.
    """

    members: Indices
    starts: Indices
    sizes: Indices
    latency: Vector
    per_byte: Vector

    def seconds(self, size: float) -> Vector:
        """What the faster way takes for so many bytes, ``[G]``."""
        found: Vector = (self.latency + size * self.per_byte).min(axis=1)
        return found


@dataclass(frozen=True)
class Costs:
    """The time that a round takes on the links.

    Attributes:
        sent: what each worker sends, in multiples of the payload, ``[W]``.
        messages: what travels between pairs.
        groups: what travels in collectives.
    """

    sent: Vector
    messages: Messages
    groups: Groups

    @cached_property
    def copies(self) -> float:
        """What a worker sends on average, in multiples of the payload."""
        return float(self.sent.mean())

    @cached_property
    def heard(self) -> int:
        """The most messages that a worker hears, each of which it adds to its own; a sum of a collective is
        one."""
        counts = np.diff(np.append(self.messages.starts, len(self.messages.senders)))
        return int(max(counts.max(initial=0), min(1, len(self.groups.starts))))

    def arrivals(self, ready: Vector, payload_bytes: float) -> Vector:
        """When the last of what each worker hears has arrived, ``[W]``; minus infinity: it hears nobody.

        Args:
            ready: when each worker begins its exchange, ``[W]``.
            payload_bytes: size of one worker's payload.
        """
        found = np.full_like(ready, -np.inf)
        m, g = self.messages, self.groups
        if len(m.hearers):
            # A receiver that is late lets its senders wait.
            begun = np.maximum(ready[m.senders], ready[m.receivers])
            ends = begun + m.latency + payload_bytes * m.per_byte
            found[m.hearers] = np.maximum.reduceat(ends, m.starts)
        if len(g.starts):
            ends = np.maximum.reduceat(ready[g.members], g.starts) + g.seconds(payload_bytes)
            found[g.members] = np.repeat(ends, g.sizes)
        return found


class Links:
    """The links among the workers of a cluster.

    Args:
        cluster: its rates, latencies and hosts.
        workers: number of workers, ``W``.
    """

    def __init__(self, cluster: Cluster, workers: int) -> None:
        self._cluster = cluster
        numbers = range(workers) if cluster.hosts is None else cluster.hosts
        self._host = np.unique(np.asarray(numbers, dtype=np.int64), return_inverse=True)[1]
        both = 2 if cluster.half_duplex else 1  # every exchange goes in both directions at once
        self._between = both * _seconds_per_byte(cluster.link)
        self._inside = both * _seconds_per_byte(cluster.inside)

    def pair_seconds(self, i: int, j: int, payload_bytes: float) -> float:
        """How long two workers take that exchange their payloads, both directions at once."""
        if self._host[i] == self._host[j]:
            return self._cluster.inside_latency + payload_bytes * self._inside
        return self._cluster.latency + payload_bytes * self._between

    def costs(self, round: Round, coded: bool = False, shards: Mapping[int, Shards] | None = None) -> Costs:
        """What a round costs.

        Args:
            round: who hears whom.
            coded: payloads are codes, which no collective can sum: all travel as messages.
            shards: the workers that exchange by shards in this round.
        """
        shards = {} if coded else shards or {}
        whole = [group for group in round.groups or () if len(group) > 2 and not coded]
        whole = [group for group in whole if group[0] not in shards]
        together = {worker for group in whole for worker in group} | shards.keys()
        rows = [() if i in together else round.senders(i) for i in range(round.workers)]
        crossing = self._share(whole)
        priced = [(group, self._ways(group, crossing)) for group in whole]
        priced += [(each.inside + each.across, (self._by_shards(each),) * 2) for each in _once(shards)]
        return Costs(np.array(sent(round, coded, shards)), self._messages(rows), _groups(priced))

    def together(self) -> Costs:
        """What one all-reduce of all workers costs."""
        everybody = range(len(self._host))
        priced = [(everybody, self._ways(everybody))]
        copies = np.full(len(everybody), 2 * (len(everybody) - 1) / len(everybody))
        return Costs(copies, self._messages([() for _ in everybody]), _groups(priced))

    def _messages(self, rows: Sequence[Sequence[int]]) -> Messages:
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        hearers = np.flatnonzero(counts)
        senders = np.array([j for row in rows for j in row], dtype=np.int64)
        receivers = np.repeat(np.arange(len(rows)), counts)
        starts = (np.cumsum(counts) - counts)[hearers]
        out_of, into = self._host[senders], self._host[receivers]
        crosses = out_of != into
        between = self._crowded(_sharing(out_of, into, crosses))
        inside = self._crowded(_sharing(senders, receivers, ~crosses))
        latency = np.where(crosses, self._cluster.latency, self._cluster.inside_latency)
        per_byte = np.where(crosses, between * self._between, inside * self._inside)
        return Messages(senders, receivers, starts, hearers, latency, per_byte)

    def _crowded(self, sharing: Indices) -> Vector:
        return np.where(sharing > 1, self._cluster.crowding, 1.0) * sharing

    def _share(self, groups: Sequence[Sequence[int]]) -> Indices:
        """How many of the groups pass through the link of each host; a ring passes it once."""
        passing = np.zeros(int(self._host.max()) + 1, dtype=np.int64)
        for group in groups:
            hosts = np.unique(self._host[list(group)])
            if len(hosts) > 1:
                passing[hosts] += 1
        return passing

    def all_reduce(self, group: Sequence[int], crossing: Indices | None = None) -> tuple[float, float]:
        """Seconds of a ring all-reduce, and seconds per byte; the slowest link sets the pace.

        Args:
            group: the workers.
            crossing: how many such groups pass through the link of each host; None: this one alone.
        """
        hosts, members = np.unique(self._host[list(group)], return_counts=True)
        latency = per_byte = 0.0
        if len(hosts) > 1:
            passing = 1.0 if crossing is None else float(crossing[hosts].max())
            latency, per_byte = self._cluster.latency, passing * self._between
        if members.max() > 1:
            latency = max(latency, self._cluster.inside_latency)
            per_byte = max(per_byte, self._inside)
        phases = 2 * (len(group) - 1)
        return phases * latency, self._cluster.collective * phases * per_byte / len(group)

    def tree_all_reduce(self, group: Sequence[int], crossing: Indices | None = None) -> tuple[float, float]:
        """The same of two binary trees over the hosts, each for half of the bytes in many small pieces, up
        and down, and a chain inside each host: every link carries all bytes twice (Sanders, Speck & Traeff
        2009, which NCCL calls a double binary tree)."""
        hosts, members = np.unique(self._host[list(group)], return_counts=True)
        inside = int(members.max()) - 1
        latency = 2 * inside * self._cluster.inside_latency
        per_byte = 2 * self._inside if inside else 0.0
        if len(hosts) > 1:
            passing = 1.0 if crossing is None else float(crossing[hosts].max())
            latency += 2 * math.ceil(math.log2(len(hosts))) * self._cluster.latency
            per_byte = max(per_byte, 2 * passing * self._between)
        return latency, self._cluster.collective * per_byte

    def _ways(self, group: Sequence[int], crossing: Indices | None = None) -> Ways:
        return self.all_reduce(group, crossing), self.tree_all_reduce(group, crossing)

    def _by_shards(self, shards: Shards) -> tuple[float, float]:
        """Reduce-scatter and all-gather inside; between the hosts one copy, of which each sends a part."""
        each, c = len(shards.inside), self._cluster
        latency, per_byte = 2 * (each - 1) * c.inside_latency, 2 * (each - 1) / each * self._inside
        return (latency + c.latency, per_byte + self._between) if shards.across else (latency, per_byte)


def _seconds_per_byte(rate: str) -> float:
    return _BITS / (bits_per_second(rate) or math.inf)


def _sharing(senders: Indices, receivers: Indices, counted: NDArray[np.bool_]) -> Indices:
    """For each message how many share the fuller one of the two ends, among those that count, ``[E]``."""
    if not len(senders):
        return senders
    ends = int(max(senders.max(), receivers.max())) + 1
    sends = np.bincount(senders[counted], minlength=ends)
    hears = np.bincount(receivers[counted], minlength=ends)
    return np.maximum(sends[senders], hears[receivers])


def _once(shards: Mapping[int, Shards]) -> list[Shards]:
    """Each pair of hosts once."""
    return list({frozenset(each.inside + each.across): each for each in shards.values()}.values())


def _groups(priced: Sequence[tuple[Sequence[int], Ways]]) -> Groups:
    sizes = np.array([len(group) for group, _ in priced], dtype=np.int64)
    ways = np.array([way for _, way in priced], dtype=np.float64).reshape(len(priced), 2, 2)
    return Groups(
        np.array([worker for group, _ in priced for worker in group], dtype=np.int64),
        np.cumsum(sizes) - sizes,
        sizes,
        ways[:, :, 0],
        ways[:, :, 1],
    )
