"""What the benchmark's guide shows can be run, and tells of everything there is."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from hf_decentral.bench.models import MODELS
from hf_decentral.bench.report import COLUMNS
from hf_decentral.bench.settings import parse
from hf_decentral.bench.variants import TABLE, check
from tests.bench.hosts import shaped
from tests.bench.test_app import KEYS, environment

GUIDE = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")


def test_its_commands_can_be_meant():
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        words = shlex.split(block.replace("\\\n", " "))
        start = words.index("bench") if "bench" in words else words.index("scripts/benchmark.py")
        settings = parse(words[start + 1 :], "")
        assert check(settings.names, workers=4)
        assert settings.emulate_ms or settings.model in MODELS


def test_it_tells_of_every_variant_model_key_and_column():
    for name in (*TABLE, *MODELS, *KEYS - {"variant"}):
        assert f"`{name}`" in GUIDE or f"`{name}:" in GUIDE, name
    for heading, key, *_ in COLUMNS:
        assert heading in GUIDE or key == "memory_above_local"


@shaped
def test_its_python_runs(tmp_path: Path):
    (tmp_path / "train.py").write_text(
        "import os; os.environ['RANK'] == '0' and print(os.environ['WORLD_SIZE'], 'workers', flush=True)"
    )
    [code] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "6 workers" in done.stdout and re.search(r"host 2 sent \d+ bytes", done.stdout)
