"""``hf-decentral topology`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hf_decentral.cli import build_app
from hf_decentral.errors import DecentralizedError
from hf_decentral.topology import names


def typed(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["topology", *words])


def test_show_prints_draws_and_writes(tmp_path: Path) -> None:
    png, file = tmp_path / "aer.png", tmp_path / "aer.json"
    done = typed("show", "aer", "-n", "8", "--hosts", "4", "--png", str(png), "--json", str(file))
    assert done.exit_code == 0, done.output
    assert "{0,1} {2,3} {4,5,6,7}" in done.stdout
    assert "exact mean after 4 rounds" in done.stdout
    assert png.read_bytes().startswith(b"\x89PNG")
    found = json.loads(file.read_text())
    assert (found["period"], found["exact_after"], found["sent_multiple"]) == (4, 4, 1.25)
    assert len(found["rounds"]) == 4


def test_a_ring_allows_two_thirds_of_the_step() -> None:
    assert "0.667 while combining" in typed("show", "ring", "-n", "8").stdout


def test_list_names_all() -> None:
    out = typed("list").stdout
    assert all(name in out for name in names())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "aerr"), "Did you mean 'aer'"),
        (("show", "aer", "-n", "0"), "1 worker or more"),
        (("show", "aer", "-n", "8", "--hosts", "4,5"), "8 in all"),
        (("show", "aer", "-n", "8", "--hosts", "x"), "the workers of each"),
    ],
)
def test_bad_input_is_told(words: tuple[str, ...], said: str) -> None:
    error = typed(*words).exception
    assert isinstance(error, DecentralizedError)  # which main() prints, and ends with 2: tests of the doctor
    assert said in str(error)
