"""Errors that the verb simulate meets."""

from __future__ import annotations

from hf_decentral.errors.base import LaunchError, sentence


def nothing_ran(refused: int) -> LaunchError:
    """Every combination was refused."""
    return LaunchError(
        sentence(
            f"none of the runs could be made, {refused} were refused",
            "expected one combination at least that can run; the table above says what each one lacks",
            "mend what it names: other workers, another topology, or a method that the algorithm takes",
        )
    )
