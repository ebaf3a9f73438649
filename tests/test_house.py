"""The rules of the house: small modules and functions, few arguments, imports that point down."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "hf_decentral"
# From the ground of the house up; a room may import what stands to its left.
ROOMS = (
    "errors",
    "rounds",
    "codecs",
    "topology",
    "transport",
    "averaging",
    "optim",
    "algorithms",
    "cluster",
    "planner",
    "data",
    "translation",
    "metrics",
    "integrations",
    "simulator",
    "trainer",
    "run",
    "bench",
    "calibration",
    "cli",
)
MODULES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "scripts").rglob("*.py")])
LINES, FUNCTION_LINES, ARGUMENTS = 300, 50, 7


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_are_short(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_functions_are_short(path: Path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES, node.name


def constructor_arguments(cls: ast.ClassDef) -> int:
    """Arguments besides self; an optimizer's first one, which torch fixes, is not counted."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            return len([each for each in given if each.arg not in ("self", "params")])
    return 0


@pytest.mark.parametrize("path", [path for path in MODULES if path.is_relative_to(PACKAGE)], ids=name)
def test_constructors_take_few_arguments(path: Path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef):
            assert constructor_arguments(node) <= ARGUMENTS, node.name


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_asserts_and_nothing_left_to_do(path: Path):
    text = path.read_text(encoding="utf-8")
    assert not [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
    for mark in ("TODO", "FIXME", "XXX"):
        assert mark not in text


def imported(tree: ast.Module) -> Iterator[str]:
    """Every module of this package that a module imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("hf_decentral"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hf_decentral"):
            # `from hf_decentral import topology` names a room too
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_imports_point_down():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__" or room.startswith("_"):
            continue
        assert room in ROOMS, f"{name(path)} stands in no room"
        for module in imported(parsed(path)):
            other = module.split(".")[1]
            if other in ROOMS and ROOMS.index(other) > ROOMS.index(room):
                wrong.append(f"{name(path)} imports {module}")
    assert not wrong


def test_no_relative_imports():
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, name(path)


def test_errors_are_built_in_their_room():
    """An error that a user meets is worded in errors/, so that one test can read them all."""
    classes = {
        node.name for node in parsed(PACKAGE / "errors" / "base.py").body if isinstance(node, ast.ClassDef)
    }
    wrong = []
    for path in MODULES:
        if path.is_relative_to(PACKAGE / "errors"):
            continue
        for node in ast.walk(parsed(path)):
            called = node.exc if isinstance(node, ast.Raise) else None
            if (
                isinstance(called, ast.Call)
                and isinstance(called.func, ast.Name)
                and called.func.id in classes
            ):
                wrong.append(f"{name(path)}:{node.lineno}")
    assert not wrong
