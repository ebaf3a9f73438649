"""What docs/calibrate.md shows runs as it stands there, and the keys that it names are those of the file."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "calibrate.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```bash\n(.*?)```", TEXT, flags=re.S)[0].splitlines()


def test_its_commands_run_and_write_the_keys_that_it_names(tmp_path: Path) -> None:
    for command in COMMANDS:
        words = [sys.executable, "-m", "hf_decentral.cli", *shlex.split(command)[1:]]
        told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=150)
        assert told.returncode == 0, told.stdout + told.stderr
    assert "recommended:" in told.stdout
    content = json.loads((tmp_path / "cluster.json").read_text(encoding="utf-8"))
    named = re.findall(r"`((?:cluster|work|about)\.(?!json)\w+)`", TEXT)
    assert len(named) > 15
    for name in named:
        part, key = name.split(".")
        assert key in content[part], name
