"""Latency and rate of a kind of link, from how long messages of several sizes took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ROUNDS = 20  # of reweighting; it settles in a few
_TOLERATED = 0.1  # relative error from which on a size counts for less (Huber)
_BITS = 8


@dataclass(frozen=True)
class Row:
    """Messages of one size.

    Attributes:
        bytes: size of a message.
        seconds: the median of the repeats; of each repeat the slowest worker counts.
        low: the lower quartile.
        high: the upper quartile.
        repeats: how many there were.
    """

    bytes: int
    seconds: float
    low: float
    high: float
    repeats: int

    @property
    def spread(self) -> float:
        """How far the quartiles are apart, relative to the median."""
        return (self.high - self.low) / self.seconds


@dataclass(frozen=True)
class Line:
    """Links of one kind, when all of them are loaded at once.

    Attributes:
        bits_per_second: of the slowest; in each direction at once, unless the links are half duplex.
        latency: seconds that a message takes whatever its size.
        spread: how far the quartiles of repeats are apart relative to their median, of the two largest sizes.
        rates: of each host, in bits per second: what it reached with the best of its partners.
        rows: by size.
    """

    bits_per_second: float
    latency: float
    spread: float
    rates: tuple[float, ...]
    rows: tuple[Row, ...]


def row(size: int, seconds: Sequence[float]) -> Row:
    """The repeats of one size."""
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    return Row(size, float(middle), float(low), float(high), len(seconds))


def line(rows: Sequence[Row], rates: Sequence[float]) -> Line:
    """The links on which these messages travelled."""
    latency, per_byte = straight([each.bytes for each in rows], [each.seconds for each in rows])
    spread = max(each.spread for each in rows[-2:])
    return Line(_BITS / per_byte, latency, spread, tuple(rates), tuple(rows))


def straight(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """``latency`` and ``per_byte`` of ``seconds = latency + size per_byte``, both 0 or more.

    The line goes through the largest size, which is nearest to what a step of training sends. Its latency is
    that of a fit in which relative errors count, so that neither the small nor the large messages have all
    the say; a size that is far off counts for less (a shaper lets short bursts pass, a library changes its
    way at some size).
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    weights = np.ones_like(y)
    latency = 0.0
    for _ in range(_ROUNDS):
        scale = np.sqrt(weights) / y
        table = np.stack([scale, x * scale], axis=1)
        latency, per_byte = (float(each) for each in np.linalg.lstsq(table, y * scale, rcond=None)[0])
        if latency < 0 or per_byte <= 0:
            latency, per_byte = 0.0, float(np.sum(weights * x / y) / np.sum(weights * (x / y) ** 2))
        errors = np.abs(latency + per_byte * x - y) / y
        weights = _TOLERATED / np.maximum(errors, _TOLERATED)
    latency = min(latency, float(y[-1]) / 2)
    return latency, (float(y[-1]) - latency) / float(x[-1])
