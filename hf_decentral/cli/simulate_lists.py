"""Lists as they are typed after the flags of ``hf-decentral simulate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TypeVar

from hf_decentral.errors import out_of_range
from hf_decentral.topology.expression import split

T = TypeVar("T")


def skew_name(skew: float | None) -> str:
    """How the samples were dealt out, as it is typed."""
    return "iid" if skew is None else f"{skew:g}"


def positive(text: str) -> float:
    """The number above 0 that a text says.

    Raises:
        ValueError: it says none.
    """
    value = float(text)
    if not (isfinite(value) and value > 0):
        raise ValueError(text)
    return value


def values(flag: str, text: str, read: Callable[[str], T], expected: str, advice: str) -> list[T]:
    """The values of a list with commas, each once, in its order.

    Args:
        flag: what it was typed after.
        text: the list.
        read: gives a value, or raises ValueError.
        expected: what the error says.
        advice: what to do, in the error.

    Raises:
        SettingsError: a value that cannot be read, or none at all.
    """
    try:
        found = list(dict.fromkeys(read(part) for part in split(text)))
    except ValueError:
        raise out_of_range(flag, text, expected, advice) from None
    if not found:
        raise out_of_range(flag, text, expected, advice)
    return found


def whole_numbers(flag: str, text: str, least: int, advice: str) -> list[int]:
    """The whole numbers of a list, each once, in its order.

    Raises:
        SettingsError: something else, or one below ``least``.
    """

    return values(flag, text, at_least(least), f"whole numbers, {least} or more", advice)


def at_least(least: int) -> Callable[[str], int]:
    """Reads a whole number; ValueError where it is below ``least``, or none."""

    def read(part: str) -> int:
        value = int(part)
        if value < least:
            raise ValueError(part)
        return value

    return read


def of_workers(flag: str, text: str | None, example: str) -> dict[int, float]:
    """What is said of some workers, as ``3=2.0,5=4``; nothing where the flag was left out.

    Raises:
        SettingsError: something else.
    """

    def read(part: str) -> tuple[int, float]:
        worker, _, number = part.partition("=")
        return int(worker), float(number)

    if text is None:
        return {}
    return dict(values(flag, text, read, "workers, each with a number", f"write for example {example}"))


def names(flag: str, text: str, known: Sequence[str]) -> list[str]:
    """The names of a list, each once, whether they are known or not; ``all`` stands for the known ones.

    Raises:
        SettingsError: there is none.
    """
    asked = values(flag, text, str, "names with commas, or all", f"{known[0]} is one")
    return list(dict.fromkeys(name for part in asked for name in (known if part == "all" else [part])))
