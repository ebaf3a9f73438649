"""Figures as they are typed, and whether they can be meant."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors.planner import implausible, not_a_count, not_a_link, rate_in_bytes

LINKS: Mapping[str, str] = {"nvlink": "2000gbit", "pcie": "160gbit"}
"""Rates by name, in one direction: of NVLink between A100s (250 GB/s of 300), of PCIe 4.0 with 16 lanes (20
GB/s of 32), each about what a collective reaches of what its data sheet says."""

FEWEST, MOST = 1e3, 1e13
"""Parameters of a model."""

SLOWEST, FASTEST = 1e3, 3.2e12
"""Bits per second of a link."""

SHORTEST_MS, LONGEST_MS = 1.0, 3.6e6
"""Milliseconds of a step: below, somebody has typed seconds; above, it is more than an hour."""

MEMORY_BYTES = 8e12
"""Bytes per second that the memory of no accelerator exceeds; a step reads all parameters at least once."""

LONGEST_US = 1e6
"""Microseconds of a latency."""

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_COUNT = re.compile(r"(\d[\d_,]*\.?\d*(?:e\+?\d+)?|\.\d+)\s*([kmbgt]?)", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([kmgt]?)(\w[\w/]*)?", re.IGNORECASE)
_BITS = ("bit", "bits", "bit/s", "bits/s", "bps", "bitps")
_UNITS = {"k": "kbit", "m": "mbit", "g": "gbit", "t": "tbit"}


def count(flag: str, text: str) -> float:
    """A number of parameters: ``124M``, ``1.5B``, ``124_439_808``.

    Raises:
        SettingsError: it is none, or no model has so many.
    """
    found = _COUNT.fullmatch(text.strip())
    value = float(re.sub("[_,]", "", found[1])) * _SCALES[found[2].lower()] if found else 0.0
    if value <= 0:
        raise not_a_count(flag, text)
    if not FEWEST <= value <= MOST:
        question = "did you leave the M out, as in 124M?"
        if value > MOST:
            question = "did you mean M where you wrote B?"
        raise implausible(flag, text, "1,000 to 10 trillion parameters", question)
    return value


def link(flag: str, text: str) -> str:
    """A rate as :func:`hf_decentral.cluster.rates.bits_per_second` reads it, or ``"none"``.

    Args:
        flag: what it was typed after.
        text: ``25gbit``, ``25 Gbit/s``, ``25Gbps``, ``1.6tbit``, a name of :data:`LINKS`, or ``none`` for
            links that nothing slows down.

    Raises:
        SettingsError: it is none, its unit is bytes or may be, or no link is like that.
    """
    told = text.strip()
    if told.lower() in LINKS or told.lower() == "none":
        return LINKS.get(told.lower(), "none")
    found = _RATE.fullmatch(told)
    if found is None or not found[3] or not found[2]:
        raise not_a_link(flag, text, ", ".join(LINKS))
    number, unit, rest = found[1], _UNITS[found[2].lower()], found[3]
    bits = float(number) * {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[found[2].lower()]
    is_bits = rest.lower() in _BITS and not (rest.lower() == "bps" and rest[0] == "B")
    if not is_bits:
        if rest.lower() not in ("b", "b/s", "bps", "byte", "bytes", "byte/s", "bytes/s", "ib", "ib/s"):
            raise not_a_link(flag, text, ", ".join(LINKS))
        raise rate_in_bytes(flag, text, number, unit, shown(8 * bits))
    if not SLOWEST <= bits <= FASTEST:
        question = "did you mean gbit?" if bits < SLOWEST else f"did you mean {shown(bits / 1000)}?"
        raise implausible(flag, text, "1kbit to 3.2tbit in each direction", question)
    return f"{bits / 1e9:.9f}gbit"


def shown(bits: float | None) -> str:
    """A rate for people: ``25gbit``; of None, ``none``."""
    if bits is None:
        return "none"
    letter, scale = next(((k, _SCALES[k]) for k in "gmk" if bits >= _SCALES[k]), ("k", 1e3))
    return f"{bits / scale:.4g}{letter}bit" if bits < 1e13 else f"{bits / 1e12:.4g}tbit"


def shown_link(text: str) -> str:
    """The rate of a cluster's link for people."""
    return shown(bits_per_second(text))


def step_seconds(flag: str, milliseconds: float, parameter_bytes: float) -> float:
    """The seconds of a step that was typed in milliseconds.

    Raises:
        SettingsError: no step takes so little or so long, or so little with so many parameters.
    """
    least = max(SHORTEST_MS, 1e3 * parameter_bytes / MEMORY_BYTES)
    if not least <= milliseconds <= LONGEST_MS:
        expected = f"{least:,.3g} to {LONGEST_MS:,.0f} milliseconds"
        if least > SHORTEST_MS:
            expected += f", with {parameter_bytes / 1e6:,.4g} MB of parameters to be read"
        seconds = 0 < milliseconds < least and least <= 1000 * milliseconds <= LONGEST_MS
        question = "give the time of a forward, a backward and an optimizer's step of one worker"
        if seconds:
            question = f"are these seconds? Did you mean --step-ms {1000 * milliseconds:g}?"
        raise implausible(flag, f"{milliseconds:g}", expected, question)
    return milliseconds / 1e3


def within(flag: str, value: float, least: float, most: float, unit: str, question: str) -> float:
    """The value, if it lies in a range.

    Raises:
        SettingsError: it does not.
    """
    if math.isnan(value) or not least <= value <= most:
        raise implausible(flag, f"{value:g}", f"{least:g} to {most:,.6g} {unit}".rstrip(), question)
    return value
