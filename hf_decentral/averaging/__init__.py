"""What is sent to the neighbours and how it is combined: one method a file, one row in the table."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import torch

from hf_decentral.averaging.base import Averaging, Exchange, Joined, Local, State
from hf_decentral.averaging.compressed import fed_back, remembered
from hf_decentral.averaging.corrections import ROWS as CORRECTIONS
from hf_decentral.averaging.plain import plain
from hf_decentral.codecs import Blockwise, Half, LowRank, RandomK, TopK
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.averaging import not_a_method


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        make: ``make(*numbers)`` gives the method.
        summary: what it is, for people.
        defaults: the numbers that may stand in parentheses behind the name, and what they are if left out.
        whole: which of them must be whole.
    """

    make: Callable[..., Averaging]
    summary: str
    defaults: tuple[float, ...] = ()
    whole: tuple[bool, ...] = ()


def _fraction(value: float) -> float:
    if not 0 < value <= 1:
        raise out_of_range(
            "fraction", value, "more than 0 and at most 1", "0.01 sends one number in a hundred"
        )
    return value


def _gamma(value: float) -> float:
    if not 0 < value <= 1:
        advice = "leave it out: the default suits the codec"
        raise out_of_range("gamma", value, "more than 0 and at most 1", advice)
    return value


def _rank(value: float) -> int:
    if value < 1:
        raise out_of_range("rank", value, "1 or more", "4 is common")
    return int(value)


TABLE: dict[str, Entry] = {
    "bf16": Entry(
        lambda: fed_back(Half(torch.bfloat16, spreads=True)),
        "bfloat16 travels, its rounding is made up for",
    ),
    "fp16": Entry(
        lambda: fed_back(Half(torch.float16, spreads=True)), "float16 travels, its rounding is made up for"
    ),
    "int4": Entry(lambda: remembered(Blockwise(4), 1.0), "differences in 4 bits, one scale for 128 numbers"),
    "int8": Entry(
        lambda: fed_back(Blockwise(8, spreads=True)),
        "8 bits, one scale for 128 numbers, rounding made up for",
    ),
    "low_rank": Entry(
        lambda rank, gamma: remembered(LowRank(_rank(rank)), _gamma(gamma)),
        "differences of matrices as products of thin ones: low_rank(rank, gamma)",
        (4, 0.2),
        (True, False),
    ),
    "plain": Entry(lambda: Averaging(plain), "the parameters as they are"),
    "random_k": Entry(
        lambda fraction, gamma: remembered(RandomK(_fraction(fraction)), _gamma(gamma)),
        "a random run of the differences: random_k(fraction, gamma)",
        (0.1, 0.1),
        (False, False),
    ),
    "top_k": Entry(
        lambda fraction, gamma: remembered(TopK(_fraction(fraction)), _gamma(gamma)),
        "the largest differences: top_k(fraction, gamma)",
        (0.05, 0.1),
        (False, False),
    ),
    **{name: Entry(*row) for name, row in CORRECTIONS.items()},
}

__all__ = ["TABLE", "Averaging", "Entry", "Exchange", "Joined", "Local", "State", "build", "names", "plain"]


def names() -> list[str]:
    """The names of all averaging methods."""
    return sorted(TABLE)


def build(name: str) -> Averaging:
    """The method of that name.

    Args:
        name: a name of the table, with numbers behind it where it takes some: ``"top_k(0.01)"``.

    Raises:
        SettingsError: no method has that name, or a number is out of range.
    """
    word, numbers = _parsed(name)
    if word not in TABLE:
        raise unknown_name("averaging", word, TABLE)
    entry = TABLE[word]
    if len(numbers) > len(entry.defaults):
        raise not_a_method(name, word, len(entry.defaults))
    for number, whole in zip(numbers, entry.whole, strict=False):
        if not isfinite(number) or (whole and number != int(number)):
            raise not_a_method(name, word, len(entry.defaults))
    return entry.make(*numbers, *entry.defaults[len(numbers) :])


def _parsed(text: str) -> tuple[str, tuple[float, ...]]:
    """The name and the numbers of ``name(number, ...)``."""
    word, opening, rest = text.partition("(")
    if not opening:
        return text, ()
    try:
        values = ast.literal_eval(f"({rest.strip().removesuffix(')')},)")
        numbers = tuple(float(value) for value in values)
    except (SyntaxError, ValueError, TypeError):
        raise not_a_method(text, word, len(TABLE[word].defaults) if word in TABLE else 0) from None
    if not rest.strip().endswith(")"):
        raise not_a_method(text, word, len(TABLE[word].defaults) if word in TABLE else 0)
    return word.strip(), numbers
