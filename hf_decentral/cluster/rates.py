"""Bandwidths as they are typed: ``200mbit``, ``1gbit``, ``none``."""

from __future__ import annotations

import math
import re

from hf_decentral.errors.cluster import not_a_rate

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_RATE = re.compile(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)")


def bits_per_second(rate: str) -> float | None:
    """The rate as a number of bits per second; None for ``none``.

    Raises:
        SettingsError: the text is no rate.
    """
    if rate == "none":
        return None
    found = _RATE.fullmatch(rate)
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise not_a_rate(rate)
    return value


def rate(bits: float | None) -> str:
    """The text of a number of bits per second; ``none`` for None and infinity."""
    return "none" if bits is None or math.isinf(bits) else f"{bits / _UNITS['mbit']:.6f}mbit"
