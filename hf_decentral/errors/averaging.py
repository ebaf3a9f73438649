"""Errors about what is sent to the neighbours."""

from __future__ import annotations

from hf_decentral.errors.base import SettingsError, sentence


def not_a_method(given: str, name: str, numbers: int) -> SettingsError:
    """Something else than a name, or a name with numbers that it takes.

    Args:
        given: what was typed.
        name: the name in it.
        numbers: how many numbers that method takes.
    """
    takes = f"at most {numbers} numbers in parentheses" if numbers else "nothing in parentheses"
    return SettingsError(
        sentence(
            f"averaging={given!r} was given",
            f"expected the name of a method, and {takes} behind {name!r}",
            "write it like 'int8' or 'top_k(0.01)'",
        )
    )


def must_repeat(averaging: str, topology: str) -> SettingsError:
    """A method that remembers what was sent in each round, and rounds that never come again."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}, whose rounds do not repeat",
            "expected rounds that repeat, since this method remembers what the workers of a round know",
            "use a topology that repeats, as 'aer', or averaging 'int8', which remembers no rounds",
        )
    )


def no_complex() -> SettingsError:
    """A method that encodes real numbers, and complex parameters."""
    return SettingsError(
        sentence(
            "complex parameters were given to an averaging method that encodes",
            "real parameters",
            "use averaging 'plain', or hold real and imaginary parts as parameters of their own",
        )
    )
