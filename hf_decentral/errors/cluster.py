"""Errors about clusters that somebody describes: compute times, links, and who comes and goes."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.errors.base import ParameterError, SettingsError, TopologyError, sentence


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


def not_a_law(given: str, written: Sequence[str]) -> SettingsError:
    """A text that describes no distribution."""
    return SettingsError(
        sentence(
            f"{given!r} was given as the compute time of a step",
            f"expected seconds, such as 0.1, or one of {', '.join(written)}",
            "write for example 'lognormal(0.1, 0.3)', in quotes on a command line",
        )
    )


def wrong_law(given: str, written: str, expected: str) -> SettingsError:
    """A distribution with numbers that are no times."""
    return SettingsError(
        sentence(
            f"{given!r} was given as the compute time of a step",
            f"{written} takes {expected}",
            "mend its numbers",
        )
    )


def never_meet(apart: Sequence[int], split: bool) -> TopologyError:
    """A graph in which some workers never average with the others, directly or by way of others."""
    odd = ", and with split=True an odd worker averages with even ones only" if split else ""
    return TopologyError(
        sentence(
            f"worker{'s' if len(apart) > 1 else ''} {', '.join(map(str, apart))} never "
            f"meet{'' if len(apart) > 1 else 's'} worker 0",
            f"the pairs that average must connect all workers{odd}",
            "take a connected topology" + (", or leave split out" if split else ""),
        )
    )


def not_one_kind(kinds: Sequence[str]) -> ParameterError:
    """Parameters that do not fit in one buffer of floating point numbers."""
    return ParameterError(
        sentence(
            f"parameters of {', '.join(kinds) or 'no dtype at all'} were given",
            "asynchronous pairs send all parameters as one vector, of one floating point dtype",
            "give the parameters that are trained, all in float32 for example",
        )
    )


def meetings_ended() -> SettingsError:
    """A local step after the worker had said goodbye."""
    return SettingsError(
        sentence(
            "local_step() was called after close()",
            "whoever has said goodbye averages no more",
            "close the meetings after the last step, or make new ones on all workers",
        )
    )


def not_a_cluster_file(path: str, problem: str) -> SettingsError:
    """A file that does not hold what was measured of a cluster."""
    return SettingsError(
        sentence(
            f"{path} cannot be read as a cluster: {problem}",
            "expected the JSON file that hf-decentral calibrate writes",
            "calibrate again, or describe the cluster with flags",
        )
    )


def not_times(count: int, wrong: float | None) -> SettingsError:
    """Samples to which no distribution of times can be fitted."""
    given = "no measured times were given" if wrong is None else f"{wrong} is among {count} measured times"
    return SettingsError(
        sentence(
            given, "expected one or more, each in seconds, finite and above 0", "measure a few steps first"
        )
    )
