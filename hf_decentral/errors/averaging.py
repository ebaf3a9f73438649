"""Errors about what is sent to the neighbours."""

from __future__ import annotations

from collections.abc import Sequence

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
    """A method that encodes or corrects real numbers, and complex parameters."""
    return SettingsError(
        sentence(
            "complex parameters were given to an averaging method that encodes or corrects",
            "real parameters",
            "use averaging 'plain', or hold real and imaginary parts as parameters of their own",
        )
    )


def wrong_order(averaging: str, order: str, orders: Sequence[str]) -> SettingsError:
    """A method that stands in another place relative to the local step."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with order={order!r}",
            f"this method works with order {' or '.join(map(repr, orders))}",
            f"set order={orders[0]!r}, or another averaging",
        )
    )


def must_be_whole(averaging: str, topology: str) -> SettingsError:
    """A method in which all workers take part in every round."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}",
            "expected rounds that are the mean of all workers, since it keeps one model that all have",
            "use topology 'complete', or 'every(8, complete)' for a round in every eighth step",
        )
    )


def wrong_delay(delay: object, order: str, least: int) -> SettingsError:
    """A delay that an order cannot have."""
    most = " and no more" if order == "cta" else " or more"
    return SettingsError(
        sentence(
            f"delay={delay!r} was given with order={order!r}",
            f"expected a whole number of steps, {least}{most}",
            "leave it out, or use order='awc' for exchanges that travel behind the computing",
        )
    )


def too_many_in_flight(topology: str, delay: int) -> SettingsError:
    """Rounds that begin before the one before has landed."""
    return SettingsError(
        sentence(
            f"delay={delay} was given with topology {topology!r}, whose rounds are closer",
            "expected that an exchange lands before the next begins, in steps that are known beforehand",
            f"write 'every({delay}, ...)' around the topology, or a smaller delay",
        )
    )
