"""Flags of a training script, with defaults out of a file: ``--recipe FILE.yaml``."""

from __future__ import annotations

from argparse import Action, ArgumentDefaultsHelpFormatter
from collections.abc import Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, TypeVar

from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.integrations.launch import read

S = TypeVar("S")


def option(text: str, default: Any = None) -> Any:
    """A field of a dataclass that `parse` makes a flag of; ``--help`` shows the text."""
    return field(default=default, metadata={"help": text})


class _Help(ArgumentDefaultsHelpFormatter):
    """Shows the defaults, but no ``(default: None)``: what happens without the flag, its text tells."""

    def _get_help_string(self, action: Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def parse(kind: type[S], arguments: Sequence[str], description: str = "") -> S:
    """Parse flags into a dataclass that has a field ``recipe``; a flag that is given wins over the recipe.

    Args:
        kind: the dataclass; its fields are the flags.
        arguments: the words of the command line.
        description: shown by ``--help``.

    Raises:
        SettingsError: a flag that there is not, here or in the recipe, or a recipe that cannot be read.
    """
    from transformers import HfArgumentParser  # heavy

    parser: Any = HfArgumentParser(
        kind,  # type: ignore[arg-type]
        description=description, allow_abbrev=False, formatter_class=_Help,
    )  # fmt: skip
    settings, *_, unknown = parser.parse_args_into_dataclasses(list(arguments), return_remaining_strings=True)
    if unknown:
        flag = next((word for word in unknown if word.startswith("-")), unknown[0])
        flags = [name for name in parser._option_string_actions if name.startswith("--")]
        raise unknown_name("flag", flag.split("=")[0], flags)
    if settings.recipe is not None:
        recipe = read(Path(settings.recipe), "--recipe")
        names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
        for name in recipe:
            if name not in names:
                raise unknown_name(f"setting in {settings.recipe}:", name, names)
        parser.set_defaults(**recipe)
        settings = parser.parse_args_into_dataclasses(list(arguments))[0]
    found: S = settings
    return found


def at_least(settings: object, smallest: int, names: Sequence[str]) -> None:
    """Refuse numbers that are too small; None, a flag that was left out, is none.

    Raises:
        SettingsError: naming the first of them.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < smallest:
            expected = f"a whole number, {smallest} or more"
            raise out_of_range(f"--{name}", value, expected, "correct the flag or the recipe")
