"""Verbs whose flags are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

import typer


def add(app: typer.Typer, name: str, flags: type[Any], run: Callable[[Any], None], help: str) -> None:
    """Add a verb.

    Args:
        app: the application.
        name: the verb.
        flags: a dataclass; each field is annotated with its option.
        run: called with the flags as they were typed.
        help: what ``--help`` says; line breaks within its paragraphs do not matter.
    """

    def verb(**typed: Any) -> None:
        run(flags(**typed))

    hints = get_type_hints(flags, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    signature = [
        inspect.Parameter(each.name, kind, default=each.default, annotation=hints[each.name])
        for each in fields(flags)
    ]
    verb.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    # A paragraph is one line, since the terminal breaks it.
    paragraphs = (" ".join(paragraph.split()) for paragraph in help.split("\n\n"))
    app.command(name, help="\n\n".join(paragraphs))(verb)
