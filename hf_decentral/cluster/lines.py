"""Latency and rate of a kind of link, from how long messages of several sizes took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np

_LARGEST = 4  # sizes that tell the rate
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

    The rate is the median slope between any two of the largest sizes (Theil 1950, Sen 1968), so that one of
    them may be far off, and so that small messages, which a shaper lets pass in a burst, have no say in it.
    The latency is the median of what is then left of all.

    Args:
        sizes: ascending.
        seconds: of each.
    """
    points = list(zip(sizes, seconds, strict=True))
    slopes = [(b - a) / (y - x) for (x, a), (y, b) in combinations(points[-_LARGEST:], 2)]
    per_byte = median(slopes) if slopes else 0.0
    if per_byte <= 0:
        return 0.0, seconds[-1] / sizes[-1]
    return max(0.0, median(time - size * per_byte for size, time in points)), per_byte
