"""Every error that the package can raise, read one by one: given, expected, what to do."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_decentral import errors
from hf_decentral.errors import DecentralizedError, SettingsError, sentence

# A value for every kind of argument that the builders take.
VALUES: dict[str, Any] = {
    "str": "thing",
    "str | None": "thing",
    "int": 3,
    "int | None": 3,
    "float": 1.5,
    "float | None": 1.5,
    "bool": True,
    "object": "thing",
    "Any": "thing",
    "Path": Path("folder") / "file.txt",
    "str | Path": "folder",
    "Sequence[str]": ("one", "two"),
    "Iterable[str]": ("one", "two"),
    "list[str]": ["one", "two"],
    "Sequence[int]": (3, 1),
    "Iterable[int]": (3, 1),
    "list[int]": [3, 1],
    "set[int]": {3, 1},
    "frozenset[int]": frozenset({3, 1}),
    "tuple[int, ...]": (3, 1),
    "dict[int, str]": {0: "one", 2: "two"},
    "dict[str, list[int]]": {"one": [0, 2], "two": [1]},
    "Mapping[int, str]": {0: "one", 2: "two"},
    "Mapping[str, Any]": {"one": 1},
    "Mapping[str, object]": {"one": 1},
    "dict[str, Any]": {"one": 1},
    "Mapping[str, tuple[object, object]]": {"one": (1, 2)},
    "Exception": ValueError("broken"),
    "BaseException": ValueError("broken"),
}


def builders() -> list[tuple[str, Callable[..., Any]]]:
    found = []
    for room in pkgutil.iter_modules(errors.__path__):
        module = importlib.import_module(f"hf_decentral.errors.{room.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            told = str(inspect.signature(function).return_annotation)
            if function.__module__ == module.__name__ and told.endswith(("Error", "PeerLost")):
                found.append((f"{room.name}.{name}", function))
    return found


BUILDERS = builders()


def build(function: Callable[..., Any]) -> Exception:
    arguments = []
    for parameter in inspect.signature(function).parameters.values():
        kind = str(parameter.annotation)
        assert kind in VALUES, f"{function.__name__}: give VALUES an example of {kind}"
        arguments.append(VALUES[kind])
    error: Exception = function(*arguments)
    return error


def test_there_are_builders():
    assert len(BUILDERS) > 30


@pytest.mark.parametrize(("name", "function"), BUILDERS, ids=[name for name, _ in BUILDERS])
def test_a_message_has_three_sentences(name, function):
    error = build(function)
    assert isinstance(error, DecentralizedError)
    parts = str(error).split("\n  ")
    assert len(parts) == 3, str(error)
    for part in parts:
        word = part.split()[0].rstrip(".,;:?")
        assert part[0] == part[0].upper() or not word.isalpha()  # a name out of code keeps its letters
        assert part[-1] in ".?", part
        assert ".." not in part.replace("...", "")
    assert inspect.getdoc(function)


def test_the_tree():
    kinds = [getattr(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))]
    for kind in kinds:
        assert issubclass(kind, DecentralizedError)
        assert kind is DecentralizedError or issubclass(kind, ValueError | RuntimeError)


def test_peer_lost_tells_machines_too():
    from hf_decentral.errors.peers import peer_lost

    error = peer_lost([2, 3], waiting=0, round=7, waited_seconds=1.0, deadline_seconds=5.0, cause="closed")
    assert error.workers == (2, 3)
    assert error.round == 7
    assert "workers 2, 3" in str(error).lower()


def test_a_name_offers_the_nearest():
    error = errors.unknown_name("topology", "rign", ["ring", "aer", "complete"])
    assert isinstance(error, SettingsError)
    assert "mean 'ring'?" in str(error)
    assert "choose one" in str(errors.unknown_name("topology", "xyzzy", ["ring"])).lower()


def test_of_a_long_table_the_near_names_are_told_or_all():
    table = [*(f"optimizer{number}" for number in range(30)), "ring"]
    assert "31 names, among them ring." in str(errors.unknown_name("name", "rign", table))
    told = str(errors.unknown_name("name", "xyzzy", table))
    assert all(name in told for name in table)


def test_sentence_keeps_the_given_words():
    assert sentence("a b", "c", "d.") == "A b.\n  C.\n  D."
