"""Calibrations from the command line: started here, under a launcher, and of a user's script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hf_decentral.calibration import app
from hf_decentral.cluster.iteration import Method, timing
from hf_decentral.cluster.measured import Measured, read
from hf_decentral.errors import LaunchError, SettingsError
from hf_decentral.topology import build
from tests.bench.hosts import left_by, shaped
from tests.scripts.launches import ROOT, accelerate, environment, torchrun

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
VERB = ["-m", "hf_decentral.cli", "calibrate"]
EXAMPLES = Path(__file__).parent / "examples"
TRAINER = ROOT / "tests" / "trainer" / "examples" / "causal_lm.py"
KINDS = ("bf16", "fp16", "int8", "int4")


def called(launcher: list[str], *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [*launcher, *VERB, *words], capture_output=True, text=True, env=environment(), timeout=200
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def calibrated(launcher: list[str], file: Path, *words: str) -> tuple[Measured, str]:
    """What was written and what was told; this machine may be as busy as it likes."""
    told = called(launcher, "--force", "--out", str(file), *words)
    assert [each.name for each in file.parent.iterdir() if ".part" in each.name] == []
    assert f"written: {file}" in told
    return read(file), told


@shaped
def test_shaped_hosts_and_a_slow_worker(tmp_path: Path):
    words = ["--hosts", "2", "--workers-per-host", "1", "--link", "200mbit", "--seconds", "8"]
    words += ["--emulate-ms", "40", "--emulate-mb", "2", "--slow-worker", "1", "--slowdown", "3"]
    found, told = calibrated([sys.executable], tmp_path / "cluster.json", *words)
    assert found.workers == 2 and found.hosts == (0, 1)
    rate = float(found.cluster.link.removesuffix("mbit"))
    assert rate == pytest.approx(200, rel=0.1)
    assert 0.04 <= found.cluster.law.mean < 0.12
    assert set(found.cluster.slow) == {1} and "worker 1" in told
    assert 0.2 < found.work.forward_share < 0.6 and found.work.local_seconds > 0
    assert found.work.parameter_bytes == pytest.approx(2e6, rel=0.01) and len(found.work.pieces) == 16
    assert tuple(found.work.codings) == KINDS
    assert found.about["backend"] == "gloo" and found.about["messages"]["link"]
    # What it is for: both directions at once of 2 MB at 200 Mbit/s cannot be shorter than this.
    pairs = timing(found, Method(build("ring", 2), behind=True, bucket_bytes=4e6))
    assert pairs.step_seconds > 0.08
    assert not left_by()


def test_one_worker_that_is_disturbed(tmp_path: Path):
    file = tmp_path / "cluster.json"
    words = ["--hosts", "1", "--seconds", "2", "--emulate-ms", "10", "--emulate-mb", "0.1"]
    words += ["--jitter", "0.5", "--slowdown", "5"]
    told = called([sys.executable], "--out", str(file), *words, code=2)
    assert "LaunchError: The measurement was disturbed: worker 0 took" in told and "--force" in told
    assert "Traceback" not in told and not list(tmp_path.iterdir())
    found, told = calibrated([sys.executable], file, *words)
    assert "one worker: none to measure" in told and "disturbed: worker 0" in told
    assert found.workers == 1 and found.cluster.link == "none" and found.uncertainty.keys() == {"compute"}


def test_the_workers_of_a_launcher_with_a_named_model(tmp_path: Path):
    words = ["--model", "gpt2-nano", "--block-size", "8", "--batch-size", "1", "--seconds", "3"]
    found, told = calibrated(torchrun(2), tmp_path / "cluster.json", *words)
    assert found.workers == 2 and len(set(found.hosts)) == 1 and found.model == "gpt2-nano, 1 x 8"
    assert "one host: none to measure" in told and found.cluster.inside != "none"
    assert told.count("written:") == 1


def test_a_trainer_script_whose_files_stay_as_they_were(tmp_path: Path):
    output = tmp_path / "out"
    (output / "checkpoint-3").mkdir(parents=True)
    kept = output / "checkpoint-3" / "trainer_state.json"
    kept.write_text("{}")
    script = [str(TRAINER), "--do_train", "--do_eval", f"--output_dir={output}", "--max_steps=100000"]
    script += ["--save_steps=2", "--save_total_limit=1", "--per_device_train_batch_size=2", "--eval_steps=2"]
    script += ["--eval_strategy=steps", "--load_best_model_at_end", "--topology=ring", "--averaging=int8"]
    launcher = accelerate("cpu_one_host.yaml", 2)
    found, _ = calibrated(launcher, tmp_path / "cluster.json", "--seconds", "4", "--", *script)
    assert found.workers == 2 and found.model == str(TRAINER)
    assert found.work.local_seconds > 0 and 0 < found.work.forward_share < 1
    assert min(found.about["steps"]) >= 10 and len(set(found.about["steps"])) == 1
    assert [each.name for each in output.rglob("*")] == ["checkpoint-3", "trainer_state.json"]
    assert kept.read_text() == "{}"


def test_a_plain_loop_saves_nothing_once_it_trains(tmp_path: Path):
    output = tmp_path / "out"
    output.mkdir()
    script = [str(EXAMPLES / "plain_loop.py"), str(output), "1000000", "5"]
    found, _ = calibrated(torchrun(2), tmp_path / "cluster.json", "--seconds", "3", "--", *script)
    assert found.workers == 2
    assert found.work.parameter_bytes == 4 * (64 * 256 + 256 + 256 + 1)  # of the larger optimizer
    assert list(output.iterdir()) == []


@pytest.mark.parametrize("evaluated", [0, 5])
def test_a_loop_that_tidies_up_when_it_is_stopped(tmp_path: Path, evaluated: int):
    output = tmp_path / "out"
    output.mkdir()
    script = [str(EXAMPLES / "tidy_loop.py"), str(output), "1000000", str(evaluated)]
    found, told = calibrated(torchrun(2), tmp_path / "cluster.json", "--seconds", "3", "--", *script)
    # Its workers are still a group when the links are measured, and no tracker wrote anything.
    assert found.workers == 2 and "links inside hosts" in told and found.about["backend"] == "gloo"
    assert found.work.drag_seconds >= 0 and list(output.iterdir()) == []


def test_a_script_that_evaluates_in_every_step(tmp_path: Path):
    script = [str(EXAMPLES / "tidy_loop.py"), str(tmp_path), "1000000", "1000000"]
    file = tmp_path / "cluster.json"
    done = subprocess.run(
        [*torchrun(2), *VERB, "--out", str(file), "--", *script],
        capture_output=True, text=True, env=environment(), timeout=200,
    )  # fmt: skip
    assert done.returncode != 0 and not file.exists()
    assert "fewer than 10 could be timed on workers 0, 1" in " ".join(done.stderr.split())


def test_a_script_that_ends_too_early(tmp_path: Path):
    output = tmp_path / "out"
    output.mkdir()
    script = [str(EXAMPLES / "plain_loop.py"), str(output), "7", "100"]
    file = tmp_path / "cluster.json"
    told = called([sys.executable], "--out", str(file), "--", *script, code=2)
    assert "plain_loop.py ended after" in told and "10 are needed" in told
    assert not file.exists() and [each.name for each in output.iterdir()] == ["ended_0"]


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (["--out", "missing/cluster.json"], SettingsError, "no folder"),
        (["--emulate-ms", "5", "--hosts", "2", "--slow-worker", "2"], SettingsError, "from 0 to 1"),
        (["--link", "200mbit", "--rate-of", "9=50mbit"], SettingsError, "9=50mbit"),
        (["--model", "gpt2-tyny"], SettingsError, "'gpt2-tiny'"),
        (["--hosts", "200", "--model", "gpt2-xl"], LaunchError, "memory"),
    ],
)
def test_what_is_refused_before_anything_starts(
    words: list[str], kind: type[Exception], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(kind) as caught:
        app.main(words)
    assert told in str(caught.value)


def test_flags_that_contradict_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match="a run of 2 workers"):
        app.main(["--hosts", "4"])


def test_help_teaches():
    told = called([sys.executable], "--help")
    assert "--emulate-ms" in told and "script behind --" in " ".join(told.split()) and "--force" in told


def test_the_file_is_what_plan_reads(tmp_path: Path):
    words = ["--hosts", "2", "--seconds", "2", "--emulate-ms", "20", "--emulate-mb", "0.2"]
    file = tmp_path / "cluster.json"
    calibrated([sys.executable], file, *words)
    content = json.loads(file.read_text())
    assert content["version"] == 1 and content["workers"] == 2
    planned = subprocess.run(
        [sys.executable, "-m", "hf_decentral.cli", "plan", "--cluster", str(file)],
        capture_output=True, text=True, env=environment(), timeout=120,
    )  # fmt: skip
    assert planned.returncode == 0, planned.stderr
