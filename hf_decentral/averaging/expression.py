"""Averaging methods written as text: a name, with a codec and numbers behind it: ``choco(int8, 0.5)``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from hf_decentral import codecs
from hf_decentral.averaging.base import Averaging
from hf_decentral.codecs import Codec
from hf_decentral.errors import unknown_name
from hf_decentral.errors.averaging import method_inside, no_codec_here, not_a_method


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        make: ``make(*arguments)`` gives the method; its arguments are numbers and :class:`Chosen` codecs.
        summary: what it is, for people.
        defaults: what may stand in parentheses behind the name, and what it is if left out: numbers, the name
            of a codec where a codec may stand, None for the gamma that suits that codec.
        whole: which of them must be whole numbers.
    """

    make: Callable[..., Averaging]
    summary: str
    defaults: tuple[float | str | None, ...] = ()
    whole: tuple[bool, ...] = ()


class Chosen(NamedTuple):
    """A codec that was chosen: ``make(spreads)`` gives it, ``gamma`` suits it."""

    make: Callable[[bool], Codec]
    gamma: float


def evaluate(text: str, table: Mapping[str, Entry]) -> Averaging:
    """The method that a text describes.

    Args:
        text: for example ``"top_k(0.01)"`` or ``"choco(int8, 0.5)"``.
        table: the methods by name.

    Raises:
        SettingsError: something else than a name of the table with what it takes, or a number out of range.
    """
    name = text.partition("(")[0].strip()
    if name not in table:
        raise unknown_name("averaging", name, table)
    reader = _Reader(text, name, table)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):  # a zero byte is a ValueError
        raise reader.error() from None
    return table[name].make(*reader.arguments(tree))


class _Reader:
    """Reads what stands behind the name of a method."""

    def __init__(self, text: str, name: str, table: Mapping[str, Entry]) -> None:
        self._text = text
        self._name = name
        self._table = table

    def error(self) -> Exception:
        """Something else than what the method takes."""
        defaults = self._table[self._name].defaults
        named = sum(isinstance(each, str) for each in defaults)
        return not_a_method(self._text, self._name, len(defaults) - named, named > 0)

    def arguments(self, tree: ast.expr) -> list[float | Chosen]:
        """Of the method, with the defaults of those left out."""
        entry, given = self._table[self._name], self._given(tree)
        if len(given) > len(entry.defaults):
            self._uncoded(given[len(entry.defaults) :])
            raise self.error()
        found: list[float | Chosen] = []
        gamma = 1.0
        for k, default in enumerate(entry.defaults):
            if isinstance(default, str):
                node = given[k] if k < len(given) else ast.parse(default, mode="eval").body
                chosen = self._codec(node)
                gamma = chosen.gamma
                found.append(chosen)
            elif k < len(given):
                found.append(self._number(given[k], k < len(entry.whole) and entry.whole[k]))
            else:
                found.append(gamma if default is None else default)
        return found

    def _given(self, tree: ast.expr) -> list[ast.expr]:
        if isinstance(tree, ast.Name):
            return []
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
            raise self.error()
        return tree.args

    def _number(self, node: ast.expr, whole: bool) -> float:
        self._uncoded([node])
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            raise self.error() from None
        if type(value) not in (int, float) or not isfinite(value) or (whole and value != int(value)):
            raise self.error()
        return float(value)

    def _uncoded(self, nodes: Iterable[ast.expr]) -> None:
        """Say why no codec may stand where one was meant."""
        if any(self._named(node) in {*codecs.TABLE, *self._table} for node in nodes):
            raise no_codec_here(self._text, self._name)

    def _codec(self, node: ast.expr) -> Chosen:
        name = self._named(node)
        if not name:
            raise self.error()
        if name not in codecs.TABLE:
            if name in self._table and name != "plain":
                raise method_inside(self._text, name, sorted(codecs.TABLE))
            raise unknown_name("codec", name, codecs.TABLE)
        row = codecs.TABLE[name]
        given = self._given(node)
        if len(given) > len(row.defaults):
            raise not_a_method(self._text, name, len(row.defaults), False)
        numbers = [self._number(each, whole) for each, whole in zip(given, row.whole, strict=False)]
        numbers += row.defaults[len(given) :]
        row.make(False, *numbers)  # numbers out of range are told here
        return Chosen(lambda spreads: row.make(spreads, *numbers), row.gamma(*numbers))

    def _named(self, node: ast.expr) -> str:
        """The name that stands here, alone or before parentheses; empty where none does."""
        inner = node.func if isinstance(node, ast.Call) else node
        return inner.id if isinstance(inner, ast.Name) else ""
