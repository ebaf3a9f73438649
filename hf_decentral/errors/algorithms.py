"""Errors about algorithms of the literature and what they are given."""

from __future__ import annotations

from hf_decentral.errors.base import SettingsError, sentence


def no_global_step(algorithm: str, reason: str) -> SettingsError:
    """An algorithm that a Trainer's loop cannot take steps of."""
    return SettingsError(
        sentence(
            f"algorithm={algorithm!r} was given to a run of real processes",
            f"expected one with a step that all workers take: {reason}",
            f"compare it with `hf-decentral simulate --algorithms {algorithm}`, or write the loop of each "
            "process around hf_decentral.cluster.Meetings",
        )
    )


def needs_topology(algorithm: str) -> SettingsError:
    """All-Reduce and an algorithm at once."""
    return SettingsError(
        sentence(
            f"algorithm={algorithm!r} was given with topology='allreduce'",
            "expected one of them: All-Reduce is the stock Trainer's, without neighbours",
            "leave the algorithm out for the baseline, or name a topology such as 'aer'",
        )
    )


def has_own_rounds(algorithm: str, rounds: str, given: str) -> SettingsError:
    """A topology for an algorithm that is made for one."""
    return SettingsError(
        sentence(
            f"algorithm={algorithm!r} was given with topology={given!r}",
            f"expected its own rounds, {rounds!r}",
            "leave the topology out, and set the period for a round in every so many steps",
        )
    )


def takes_no_topology(algorithm: str) -> SettingsError:
    """A topology that is no name, for an algorithm that puts something around a name."""
    return SettingsError(
        sentence(
            f"algorithm={algorithm!r} was given with a topology made by the script",
            "expected the name of a topology, around which this algorithm writes its schedule",
            "make the schedule yourself, as every(4, topology), and give order and averaging with it",
        )
    )


def no_period(algorithm: str | None, rounds: str, period: int) -> SettingsError:
    """A period for rounds that have none."""
    whose = f"algorithm={algorithm!r}" if algorithm else "no algorithm"
    return SettingsError(
        sentence(
            f"period={period} was given with {whose}",
            "expected an algorithm with a period of its own, such as 'ldsgd' or 'slowmo'",
            f"write topology='every({period}, {rounds})' for a round in every so many steps",
        )
    )
