"""The scripts that measure: every kind of run, very short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.scripts.launches import begin, finish, torchrun

ROOT = Path(__file__).resolve().parent.parent.parent
PLAN = """
- {method: allreduce, lr: 1e-3, steps: 10, layers: 1, width: 32, block: 16}
- {method: [dadamw, accumadamw], topology: aer, lr: 1e-3, steps: 10, layers: 1, width: 32, block: 16}
- {method: dadamw, topology: ring, complete_steps: 3, embedding_scale: 4, lr: 1e-3, steps: 10, layers: 1,
   width: 32, block: 16}
"""


def compared(folder: Path, *words: str) -> str:
    script = [
        sys.executable,
        str(ROOT / "scripts" / "compare_quality.py"),
        "--output_dir",
        str(folder),
        *words,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plan_becomes_a_table(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    out = compared(tmp_path / "found", "--plan", str(tmp_path / "plan.yaml"), "--jobs", "2")
    found = [json.loads(path.read_text()) for path in (tmp_path / "found").glob("*.json")]
    assert len(found) == 4
    assert all(4 < run["val_loss"] < 9 for run in found)
    assert {run["tokens"] for run in found} == {10 * 4 * 2 * 16}
    assert all((run["consensus_distance"] > 0) == (run["method"] != "allreduce") for run in found)
    assert all(word in out for word in ("allreduce", "dadamw", "accumadamw", "val loss"))
    assert compared(tmp_path / "found") == out  # only printed, from the files


def test_the_plan_of_the_readme_can_be_read() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from compare_quality import expand
    finally:
        sys.path.pop(0)
    runs = expand(yaml.safe_load((ROOT / "scripts" / "plans" / "short_runs.yaml").read_text()))
    assert {run.method for run in runs} == {"allreduce", "dadamw", "accumadamw"}
    assert len({run.name for run in runs}) == len(runs)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("--variants", "local", "ddp", "ring", "--apart", "--model", "gpt2-nano"), "ratio_to_ddp"),
        (("--variants", "ddp,ring", "--memory", "--memory_mb", "64"), "memory_above_local"),
    ],
    ids=["time", "memory"],
)
def test_the_benchmark_under_a_launcher(tmp_path: Path, words: tuple[str, ...], key: str) -> None:
    file = tmp_path / "step.json"
    script = [str(ROOT / "scripts" / "benchmark.py"), *words, "--json", str(file)]
    small = ["--blocks", "2", "--steps", "1", "--block_size", "8"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run([*launch, *script, *small], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    assert result["workers"] == 2
    case = result["cases"][-1]
    assert case["variant"] == "ring"
    assert case[key] > 0
    if key == "memory_above_local":  # the one neighbour of a ring of two needs one buffer
        assert case[key] == pytest.approx(1, abs=0.2)
    else:
        assert case["sent_bytes"] > 0.9 * result["parameter_bytes"]


def test_the_benchmark_compares_our_trainer_with_the_stock_one(tmp_path: Path) -> None:
    file = tmp_path / "trainer.json"
    variants = ["stock", "allreduce", "aer"]
    small = ["--blocks=1", "--steps=4", "--n_layer=1", "--n_embd=32", "--block_size=8", f"--json={file}"]
    script = [str(ROOT / "scripts" / "benchmark_trainer.py"), "--variants", *variants, *small]
    process = begin([*torchrun(2), *script], tmp_path / "trainer")
    code, told = finish(process, tmp_path / "trainer")
    assert code == 0, told
    found = json.loads(file.read_text())
    assert found["workers"] == 2
    assert list(found["rows"]) == variants
    for row in found["rows"].values():
        assert row.keys() == {"step_seconds", "ratio", "quartiles"}
        assert row["step_seconds"] > 0 and row["quartiles"][0] <= row["ratio"] <= row["quartiles"][1]
    assert found["rows"]["stock"]["ratio"] == 1
    assert all(variant in told for variant in variants)
