"""What docs/simulator.md shows runs as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hf_decentral.cli.app import build_app
from tests.simulator.test_problems import DIGITS

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "simulator.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", TEXT, flags=re.S) for line in block.splitlines()
]


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_its_python_runs(code: str) -> None:
    exec(compile(code, "docs/simulator.md", "exec"), {"__name__": "page"})


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_its_commands_run(command: str, tmp_path: Path) -> None:
    """With few steps and one seed: what is said of flags is tested here, what comes out elsewhere."""
    words = shlex.split(command)[1:]
    if words[0] == "simulate":
        few = ["--steps", "2", "--seeds", "1", "--workers", "4", "--out", str(tmp_path)]
        if "mnist" in command and not DIGITS.is_file():
            pytest.skip("../shared/data is absent")
        words += few
    result = CliRunner().invoke(build_app(), words)
    assert result.exit_code == 0, result.output
