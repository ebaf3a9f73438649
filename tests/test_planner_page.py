"""What docs/planner.md shows runs as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hf_decentral.cli import plan_table
from hf_decentral.cli.app import build_app
from hf_decentral.planner import Row
from hf_decentral.planner.scaling import scaling

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "planner.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", TEXT, flags=re.S) for line in block.splitlines()
]


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_its_python_runs(code: str) -> None:
    exec(compile(code, "docs/planner.md", "exec"), {"__name__": "page"})


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_its_commands_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With curves up to 16 workers, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_table, "scaling", lambda measured: scaling(measured, most=16))
    result = CliRunner().invoke(build_app(), shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert "recommended:" in result.output


def test_its_keys_are_those_of_a_row() -> None:
    columns = TEXT.split("## What the columns mean")[1].split("## ")[0]
    keys = set(re.findall(r"`(\w+)`", columns)) & {*Row.__dataclass_fields__}
    assert keys == {*Row.__dataclass_fields__}
