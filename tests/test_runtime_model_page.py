"""What docs/runtime_model.md shows runs as it stands there, and says what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "runtime_model.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)


def run(code: str) -> None:
    exec(compile(code, "docs/runtime_model.md", "exec"), {"__name__": "page"})


def test_its_exchanges(capsys: pytest.CaptureFixture[str]) -> None:
    run(PYTHON[0])
    # 31/16 and 7/4 of 260 MB at 25 Gbit/s, 3/2 at 160; latencies are 2 to 3 ms of it.
    assert re.findall(r"\d+ ms|\d+ and", capsys.readouterr().out) == ["163 ms", "146 and", "20 ms", "93 ms"]


def test_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    run(PYTHON[1])
    found = dict(re.findall(r"(\w+) ([\d.]+)", capsys.readouterr().out))
    assert set(found) == {"complete", "ring", "barrier"}
    for name, said in {"complete": 1.26, "ring": 1.18, "barrier": 1.86}.items():
        assert float(found[name]) == pytest.approx(said, rel=0.05) and f"{said} s" in TEXT


def test_all_of_its_python_is_run_here():
    assert len(PYTHON) == 2


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", TEXT))
def test_its_links_lead_somewhere(link: str):
    assert (ROOT / "docs" / link).exists()
