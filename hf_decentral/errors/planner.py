"""Errors that a plan meets: figures that cannot be meant, and descriptions that lack something."""

from __future__ import annotations

from pathlib import Path

from hf_decentral.errors.base import SettingsError, sentence


def not_a_count(flag: str, given: str) -> SettingsError:
    """A text that is no number of parameters."""
    return SettingsError(
        sentence(
            f"{flag}={given!r} was given",
            "expected a number above 0, alone or with k, M, B or T behind it",
            "write for example 124M or 1.5B",
        )
    )


def implausible(flag: str, given: str, expected: str, question: str) -> SettingsError:
    """A figure that no cluster has, as far as anybody knows.

    Args:
        flag: what it was given as.
        given: the figure.
        expected: the range that there is.
        question: what may have been meant.
    """
    told = sentence(f"{flag}={given} was given", f"expected {expected}", question)
    return SettingsError(told.replace("?.", "?"))


def rate_in_bytes(flag: str, given: str, number: str, unit: str, bits: str) -> SettingsError:
    """A rate whose unit is bytes, or may be.

    Args:
        flag: what it was given as.
        given: the text.
        number: its number.
        unit: ``"kbit"``, ``"mbit"``, ``"gbit"`` or ``"tbit"``, with the same prefix.
        bits: the rate if bytes were meant.
    """
    return SettingsError(
        sentence(
            f"{flag}={given!r} was given",
            f"links are counted in bits, and {number} {unit[0].upper()}B/s are {bits}",
            f"did you mean {number}{unit}, or {bits}?",
        ).replace("?.", "?")
    )


def not_a_link(flag: str, given: str, presets: str) -> SettingsError:
    """A text that is no rate, and no name of one."""
    return SettingsError(
        sentence(
            f"{flag}={given!r} was given",
            f"expected {presets}, or a number with kbit, mbit, gbit or tbit behind it (bits per second)",
            "write for example 25gbit",
        )
    )


def lacking(flag: str, why: str) -> SettingsError:
    """Something without which nothing can be predicted."""
    return SettingsError(
        sentence(
            f"no {flag} was given",
            f"it is needed {why}",
            f"give {flag}, or the file that hf-decentral calibrate writes as --cluster",
        )
    )


def other_model(flag: str, given_mb: float, measured_mb: float) -> SettingsError:
    """A model of another size than the one that was measured, whose compute time nobody knows."""
    return SettingsError(
        sentence(
            f"{flag} makes {given_mb:,.4g} MB of parameters, and {measured_mb:,.4g} MB were measured",
            "a step of another model takes another time",
            "give its --step-ms, or calibrate with it",
        )
    )


def both_given(first: str, second: str) -> SettingsError:
    """Two flags that say the same thing."""
    return SettingsError(
        sentence(f"both {first} and {second} were given", "expected one of them", "leave one out")
    )


def uneven_hosts(counts: str) -> SettingsError:
    """Hosts with unequal numbers of workers, in a measurement that is to be laid out anew, or launched."""
    return SettingsError(
        sentence(
            f"the hosts have {counts} workers",
            "a launch file has one number for all hosts, and so has a plan for other hosts",
            "give --hosts and --workers-per-host, both",
        )
    )


def already_there(path: Path) -> SettingsError:
    """A launch file that would be overwritten."""
    return SettingsError(
        sentence(
            f"{str(path)!r} is there already",
            "expected a new file, since somebody may have changed this one by hand",
            "name another, or add --force",
        )
    )


def too_many_workers(workers: int, most: int) -> SettingsError:
    """More workers than can be planned in a reasonable time."""
    return SettingsError(
        sentence(
            f"{workers:,} workers were asked for",
            f"expected {most:,} at most: every worker's steps are drawn one by one",
            "plan for fewer; from some hundred on a step changes little with their number",
        )
    )
