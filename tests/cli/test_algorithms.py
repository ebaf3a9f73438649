"""``hf-decentral algorithms``."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from hf_decentral.algorithms import TABLE
from hf_decentral.cli.app import build_app


def test_every_algorithm_is_told_with_its_parts(tmp_path: Path) -> None:
    result = CliRunner().invoke(build_app(), ["algorithms", "--json", str(tmp_path / "a.json")])
    assert result.exit_code == 0
    told = json.loads((tmp_path / "a.json").read_text())["algorithms"]
    assert set(told) == set(TABLE)
    assert told["slowmo"]["topology"] == "every({period}, complete)"
