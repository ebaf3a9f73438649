"""Flags out of a dataclass and a file: what ``--help`` shows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hf_decentral.errors import SettingsError
from hf_decentral.integrations.recipe import at_least, option, parse


@dataclass
class Flags:
    recipe: str | None = option("YAML file.")
    accum: int | None = option("Steps of a window; default: 4.")
    steps: int = option("Steps.", 7)


def test_help_shows_the_defaults_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(Flags, ["--help"], "Trains.")
    told = capsys.readouterr().out
    assert "Trains." in told and "Steps. (default: 7)" in told and "default: 4.\n" in told
    assert "None" not in told


def test_numbers_that_are_too_small_are_refused_and_flags_left_out_are_not() -> None:
    at_least(parse(Flags, []), 1, ("accum", "steps"))
    with pytest.raises(SettingsError, match="--accum=0 was given"):
        at_least(parse(Flags, ["--accum", "0"]), 1, ("steps", "accum"))
