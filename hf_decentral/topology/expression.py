"""Topologies written as text: names, some with numbers, and combinators around them, as
``then(complete, 500, base_graph(2))``.

What is read is what ``Topology.name`` prints, so a schedule may stand wherever the name of a topology may: on
a command line, in the environment, in a launch file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hf_decentral.errors import unknown_name
from hf_decentral.errors.topology import not_an_expression, wrong_numbers
from hf_decentral.topology.base import Topology
from hf_decentral.topology.combinators import above, every, lazy, rounds, then


class Combinator(NamedTuple):
    """One row: the function, and the kinds of its arguments; whole numbers (``int``), or any (``float``)."""

    make: Callable[..., Topology]
    kinds: tuple[type, ...]


COMBINATORS: dict[str, Combinator] = {
    "above": Combinator(above, (float, Topology)),
    "every": Combinator(every, (int, Topology)),
    "lazy": Combinator(lazy, (Topology,)),
    "rounds": Combinator(rounds, (int, Topology)),
    "then": Combinator(then, (Topology, int, Topology)),
}


def is_expression(text: str) -> bool:
    """True for more than a single name."""
    return "(" in text


def split(text: str) -> list[str]:
    """Split a list at its commas, but not at those inside brackets: ``ddp,every(8, ring)``."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def evaluate(
    text: str, known: Mapping[str, int], build: Callable[[str, tuple[int, ...]], Topology]
) -> Topology:
    """The topology that a text describes.

    Args:
        text: for example ``"every(8, ring)"``.
        known: the names of topologies, and how many numbers each takes.
        build: makes the topology of a name and its numbers.

    Raises:
        SettingsError: something else than names, numbers and combinators, or a number out of range.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):  # a zero byte is a ValueError
        raise not_an_expression(text, list(COMBINATORS)) from None
    return _evaluate(tree, text, known, build)


def _evaluate(
    node: ast.expr,
    text: str,
    known: Mapping[str, int],
    build: Callable[[str, tuple[int, ...]], Topology],
) -> Topology:
    if isinstance(node, ast.Name):
        if node.id not in known:
            raise unknown_name("topology", node.id, known)
        return build(node.id, ())
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise not_an_expression(text, list(COMBINATORS))
    word = node.func.id
    if word in known:
        return build(word, _numbers(node.args, text, word, known[word]))
    if word not in COMBINATORS:
        taking = [name for name, most in known.items() if most]
        raise unknown_name("combinator of topologies", word, [*COMBINATORS, *taking])
    make, kinds = COMBINATORS[word]
    if len(node.args) != len(kinds):
        raise not_an_expression(text, list(COMBINATORS))
    arguments: list[float | Topology] = []
    for each, kind in zip(node.args, kinds, strict=True):
        if kind is Topology:
            arguments.append(_evaluate(each, text, known, build))
        elif isinstance(each, ast.Constant) and type(each.value) in (int, kind):
            arguments.append(each.value)  # type: ignore[arg-type]  # a number, as was seen
        else:
            raise not_an_expression(text, list(COMBINATORS))
    return make(*arguments)


def _numbers(given: Sequence[ast.expr], text: str, word: str, most: int) -> tuple[int, ...]:
    """The whole numbers in the parentheses of a topology."""
    found = [each.value for each in given if isinstance(each, ast.Constant) and type(each.value) is int]
    if len(found) < len(given) or not 0 < len(found) <= most:
        raise wrong_numbers(text, word, most)
    return tuple(found)
