"""Topologies written as text: a name, or combinators around names, as ``then(complete, 500, aer)``.

What is read is what ``Topology.name`` prints, so a schedule may stand wherever the name of a topology may: on
a command line, in the environment, in a launch file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hf_decentral.errors import unknown_name
from hf_decentral.errors.topology import not_an_expression
from hf_decentral.topology.base import Topology
from hf_decentral.topology.combinators import every, rounds, then


class Combinator(NamedTuple):
    """One row: the function, and which of its arguments are numbers of steps (the others are topologies)."""

    make: Callable[..., Topology]
    steps: tuple[bool, ...]


COMBINATORS: dict[str, Combinator] = {
    "every": Combinator(every, (True, False)),
    "rounds": Combinator(rounds, (True, False)),
    "then": Combinator(then, (False, True, False)),
}


def is_expression(text: str) -> bool:
    """True for more than a single name."""
    return "(" in text


def evaluate(text: str, known: Iterable[str], build: Callable[[str], Topology]) -> Topology:
    """The topology that a text describes.

    Args:
        text: for example ``"every(8, ring)"``.
        known: the names of topologies.
        build: makes the topology of a name.

    Raises:
        SettingsError: something else than names, whole numbers and combinators, or a number out of range.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):  # a zero byte is a ValueError
        raise not_an_expression(text, list(COMBINATORS)) from None
    return _evaluate(tree, text, sorted(known), build)


def _evaluate(node: ast.expr, text: str, known: Sequence[str], build: Callable[[str], Topology]) -> Topology:
    if isinstance(node, ast.Name):
        if node.id not in known:
            raise unknown_name("topology", node.id, known)
        return build(node.id)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise not_an_expression(text, list(COMBINATORS))
    if node.func.id not in COMBINATORS:
        raise unknown_name("combinator of topologies", node.func.id, COMBINATORS)
    make, steps = COMBINATORS[node.func.id]
    if len(node.args) != len(steps):
        raise not_an_expression(text, list(COMBINATORS))
    arguments: list[int | Topology] = []
    for each, is_number in zip(node.args, steps, strict=True):
        if not is_number:
            arguments.append(_evaluate(each, text, known, build))
        elif isinstance(each, ast.Constant) and type(each.value) is int:
            arguments.append(each.value)
        else:
            raise not_an_expression(text, list(COMBINATORS))
    return make(*arguments)
