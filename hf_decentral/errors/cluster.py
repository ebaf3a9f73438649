"""Errors about clusters that somebody describes: compute times, links, and who comes and goes."""

from __future__ import annotations

from hf_decentral.errors.base import SettingsError, sentence


def not_a_rate(given: str) -> SettingsError:
    """A text that is no bandwidth."""
    return SettingsError(
        sentence(
            f"{given!r} was given as the rate of a link",
            "a rate is a number above 0 and a unit, kbit, mbit or gbit (bits per second), such as 200mbit or "
            "1.5gbit",
            "write it like that, or none for links that nothing slows down",
        )
    )
