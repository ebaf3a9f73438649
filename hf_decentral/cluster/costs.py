"""Closed forms of what exchanges and steps cost, where they exist.

``P`` bytes, latency ``L`` seconds and bandwidth ``B`` bytes per second of a link, ``q`` workers of a group,
``m`` workers of a host, ``c`` compute seconds of a step. The textbook's alpha-beta model of messages (Thakur,
Rabenseifner & Gropp 2005 for the collectives); how they enter the time of a step is our own derivation, since
the formulas of "From Promise to Practice" (arXiv 2410.11998, appendix A.5) were not at hand. The event model,
:mod:`hf_decentral.cluster.iteration`, agrees with them wherever they hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_decentral.cluster.laws import Law
from hf_decentral.errors import out_of_range

_BITS = 8
_POINTS = 20_000


@dataclass(frozen=True)
class Wire:
    """A link.

    Attributes:
        latency_seconds: until the first bit of a message arrives.
        bits_per_second: in each direction; infinity where nothing slows it down.
        half_duplex: the directions take turns.

    Raises:
        SettingsError: a latency below 0, or a bandwidth of 0 or less.
    """

    latency_seconds: float
    bits_per_second: float
    half_duplex: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.latency_seconds < math.inf:
            raise out_of_range("latency_seconds", self.latency_seconds, "seconds, 0 or more", "0 is none")
        if not self.bits_per_second > 0:
            advice = "write bits, not bytes: 25e9 is 25 Gbit/s"
            raise out_of_range("bits_per_second", self.bits_per_second, "more than 0", advice)

    def message(self, size: float, pieces: int = 1) -> float:
        """Seconds of ``size`` bytes in one direction, in pieces of which each waits for the one before."""
        return pieces * self.latency_seconds + size * _BITS / self.bits_per_second

    def both_ways(self, size: float, sharing: int = 1) -> float:
        """Seconds in which ``size`` bytes go each way, for each of so many exchanges that share the link."""
        turns = 2 if self.half_duplex else 1
        return self.latency_seconds + turns * sharing * size * _BITS / self.bits_per_second


def reduce_scatter(workers: int, size: float, wire: Wire) -> float:
    """``(q - 1) (L + P / (q B))``, on a ring; an all-gather takes as long."""
    return (workers - 1) * wire.both_ways(size / workers)


def ring_all_reduce(workers: int, size: float, wire: Wire) -> float:
    """``2 (q - 1) (L + P / (q B))``: a reduce-scatter and an all-gather."""
    return 2 * reduce_scatter(workers, size, wire)


def tree_all_reduce(workers: int, size: float, wire: Wire, pieces: int = 1) -> float:
    """``2 (d + s - 1) (L + P / (s B))``: up and down a binary tree of depth ``d``, in ``s`` pieces.

    One piece goes up a level while the next one comes.
    """
    if workers == 1:
        return 0.0
    depth = math.ceil(math.log2(workers))
    return 2 * (depth + pieces - 1) * wire.message(size / pieces)


def hierarchical_exchange(per_host: int, size: float, inside: Wire, between: Wire) -> float:
    """A mean over two hosts by shards: reduce-scatter inside, one copy of ``P`` across, all-gather inside."""
    return ring_all_reduce(per_host, size, inside) + between.both_ways(size / per_host, sharing=per_host)


def aer_rounds(per_host: int, size: float, inside: Wire, between: Wire) -> tuple[float, float]:
    """Seconds of a worker's two rounds in AER: the mean over two hosts, and that inside its own."""
    if per_host == 1:
        return between.both_ways(size), 0.0
    workers = 2 * per_host
    phases = 2 * (workers - 1)
    slowest = max(inside.both_ways(size / workers), between.both_ways(size / workers))
    within = ring_all_reduce(per_host, size, inside) if per_host > 2 else inside.both_ways(size)
    return phases * slowest, within


def gossip_step(compute: float, exchanges: Sequence[float]) -> float:
    """Mean seconds of a step that hides its exchange, ``mean_k max(c, T_k)`` over the rounds of a period,
    where all workers compute equally long and are on the wire together."""
    return math.fsum(max(compute, seconds) for seconds in exchanges) / len(exchanges)


def all_reduce_step(compute: float, backward: float, first: float, rest: float) -> float:
    """Seconds of a step under DistributedDataParallel with two buckets, where all workers compute alike.

    The first bucket's all-reduce (``first`` seconds) begins when its gradients are there, here right at the
    begin of backward, the other's (``rest``) at its end: ``c + max(0, first - b) + rest``.
    """
    return compute + max(0.0, first - backward) + rest


def expected_slowest(times: Law, workers: int) -> float:
    """``E max`` over independent workers, what a barrier costs in each step: ``integral Q(u^(1/q)) du``.

    For a normal distribution about ``mean + sd sqrt(2 ln q)`` once ``q`` is large.
    """
    u = (np.arange(_POINTS) + 0.5) / _POINTS
    return float(times.at(u ** (1 / workers)).mean())
