"""The curves of the algorithms' pages can be drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "draw_algorithms.py"


def draw(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_small_pictures_of_two_pages(tmp_path: Path):
    pytest.importorskip("matplotlib")
    told = draw("--only", "dpsgd", "slowmo", "--problem", "logistic", "--steps", "20", "--out", str(tmp_path))
    assert told.returncode == 0, told.stderr
    for name in ("dpsgd.png", "slowmo.png"):
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG") and 4_000 < len(picture) < 40_000
    assert sorted(os.listdir(tmp_path)) == ["dpsgd.png", "slowmo.png"]
    assert (tmp_path / "dpsgd.png").read_bytes() != (tmp_path / "slowmo.png").read_bytes()


def test_a_page_that_is_none():
    pytest.importorskip("matplotlib")
    told = draw("--only", "slomo")
    assert told.returncode == 2 and "slowmo" in told.stderr
