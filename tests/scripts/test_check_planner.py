"""What is predicted is held to what is measured: the ranking by hand, and one small cluster in full."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.bench.hosts import left_by, shaped
from tests.scripts.launches import ROOT, environment

SCRIPT = ROOT / "scripts" / "check_planner.py"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    place = importlib.util.spec_from_file_location("check_planner", SCRIPT)
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    sys.modules["check_planner"] = module
    place.loader.exec_module(module)
    return module


def checked(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, env=environment(), timeout=280
    )


def test_a_ranking_is_wrong_only_beyond_the_quartiles(script: ModuleType):
    def found(*times: tuple[float, float]) -> list[object]:
        return [
            script.Compared(f"v{k}", predicted, took, 0.98 * took, 1.02 * took)
            for k, (predicted, took) in enumerate(times)
        ]

    assert script.ranked(found((1.0, 1.1), (2.0, 2.2), (3.0, 3.1), (4.0, 4.0)))
    assert not script.ranked(found((1.0, 2.2), (2.0, 1.1), (3.0, 3.1)))
    assert script.ranked(found((1.0, 1.01), (1.1, 1.0), (3.0, 3.1)))  # measured alike
    assert script.ranked(found((1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 6.0), (5.0, 5.0)))  # beyond the best
    assert not script.ranked(found((1.0, 1.0), (2.0, 2.0), (3.0, 9.0), (4.0, 6.0)))
    assert found((1.1, 1.0))[0].error == pytest.approx(0.1)


def test_numbers_that_no_plan_has(tmp_path: Path):
    told = checked("--output_dir", str(tmp_path), "--only", "99")
    assert told.returncode == 1 and "[99]" in told.stderr and "clusters 0 to" in told.stderr


@shaped
@pytest.mark.processes
def test_one_small_cluster(tmp_path: Path):
    plan, out = tmp_path / "plan.yaml", tmp_path / "out"
    plan.write_text("- {hosts: 2, workers_per_host: 1, link: 200mbit, emulate_ms: 40, emulate_mb: 1}\n")
    words = ["--output_dir", str(out), "--plan", str(plan)]
    quick = ["--seconds", "3", "--blocks", "1", "--steps", "3", "--force"]
    told = checked(*words, *quick)
    assert told.returncode == 0, told.stdout + told.stderr
    found = json.loads((out / "planner.json").read_text())
    (rows,) = found["found"].values()
    assert {each["variant"] for each in rows} == {"ddp", "complete", "ring", "aer", "aer+bf16", "aer+int8"}
    assert all(0.03 < each["measured"] < 2 and 0.03 < each["predicted"] < 2 for each in rows)
    assert found["cases"] == 6 and found["clusters"] == 1
    assert found["median_error"] <= found["worst_error"] < 3
    assert (out / "planner.png").read_bytes().startswith(b"\x89PNG")
    before = sorted((each, each.stat().st_mtime_ns) for each in out.rglob("bench.json"))
    shown = checked(*words, "--show")
    assert shown.returncode == 0 and "6 times on 1 clusters: " in shown.stdout
    assert sorted((each, each.stat().st_mtime_ns) for each in out.rglob("bench.json")) == before
    assert not left_by()
