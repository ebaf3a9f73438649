"""``hf-decentral demo`` with real launches, small; and the report of what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hf_decentral.cli import demo, report
from hf_decentral.errors import DataError, LaunchError, SettingsError

KEYS = {
    "topology",
    "optim",
    "workers",
    "steps",
    "tokens",
    "val_loss",
    "step_seconds",
    "consensus_distance",
    "sent_bytes",
}


def words(verb: str, *more: str | Path) -> list[str]:
    return [sys.executable, "-m", "hf_decentral.cli", verb, *map(str, more)]


def run_cli(*more: str | Path) -> subprocess.CompletedProcess[str]:
    # Settings of the caller must not change what the demo shows.
    environment = {**os.environ, "COLUMNS": "200", "DECENTRAL_TOPOLOGY": "ring", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        words(str(more[0]), *more[1:]), env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a demo of 6 steps with 2 workers."""
    output = tmp_path_factory.mktemp("demo")
    size = ("--steps", "6", "--workers", "2")
    told = run_cli("demo", *size, "--output_dir", output, "--json", output / "demo.json")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "validation loss" in told.stdout
    return output


def test_both_runs_are_told_with_the_same_keys(finished: Path):
    runs = json.loads((finished / "demo.json").read_text())["runs"]
    assert [run["topology"] for run in runs] == ["allreduce", "aer"]
    for run in runs:
        assert run.keys() >= KEYS
        assert run["workers"] == 2
        assert run["steps"] == 6
        assert run["val_loss"] > 0
        assert run["sent_bytes"] > 0
    assert runs[0]["tokens"] == runs[1]["tokens"] == 6 * 2 * 8 * 64
    assert runs[0]["settings"]["seed"] == runs[1]["settings"]["seed"]
    assert runs[0]["consensus_distance"] == 0
    assert runs[1]["consensus_distance"] > 0


def test_the_picture_is_one(finished: Path):
    assert (finished / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_models_load(finished: Path):
    from transformers import GPT2LMHeadModel

    for planned in demo.PLAN:
        assert GPT2LMHeadModel.from_pretrained(finished / planned.folder / "model").num_parameters() > 0


def test_report_reads_the_same_runs(finished: Path, tmp_path: Path):
    folders = [finished / planned.folder for planned in demo.PLAN]
    told = run_cli("report", *folders, "--png", tmp_path / "a.png", "--json", tmp_path / "a.json")
    assert told.returncode == 0, told.stderr
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads((finished / "demo.json").read_text())
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_a_run_that_fails_is_told_with_its_own_words(tmp_path: Path):
    before = tmp_path / "allreduce" / "checkpoints" / "step_00000001"
    before.mkdir(parents=True)
    (before / "decentral.json").write_text("{}")  # which the script will not write over
    told = run_cli("demo", "--steps", "2", "--workers", "2", "--output_dir", tmp_path)
    assert told.returncode == 2
    assert "CheckpointError" in told.stderr
    assert "hf-decentral doctor" in told.stderr
    assert "Traceback" not in told.stderr


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path):
    more = ("--steps", "100000", "--workers", "2", "--output_dir", str(tmp_path))
    process = subprocess.Popen(
        words("demo", *more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started: list[psutil.Process] = []
    until = time.monotonic() + 200
    while time.monotonic() < until and process.poll() is None:
        started = psutil.Process(process.pid).children(recursive=True)
        if (tmp_path / "allreduce" / "metrics.jsonl").is_file() and len(started) >= 3:
            break
        time.sleep(0.2)
    assert len(started) >= 3, "the workers did not start"
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in told
    assert psutil.wait_procs(started, timeout=10)[1] == []


@pytest.mark.parametrize(
    ("flags", "word"),
    [(("--steps", "0"), "--steps"), (("--workers", "0"), "--workers"), (("--seed", "-1"), "--seed")],
)
def test_nonsense_is_refused(flags, word, tmp_path: Path):
    told = run_cli("demo", *flags, "--output_dir", tmp_path / "never")
    assert told.returncode == 2
    assert word in told.stderr
    assert "Traceback" not in told.stderr
    assert not (tmp_path / "never").exists()


def test_files_are_found_in_a_clone_and_their_lack_is_told():
    assert demo.find("scripts", "pretrain_gpt2.py").is_file()
    with pytest.raises(LaunchError, match="does not exist"):
        demo.find("scripts", "no_such_script.py")


def test_settings_of_the_caller_do_not_reach_the_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DECENTRAL_TOPOLOGY", "ring")
    monkeypatch.setenv("WORLD_SIZE", "3")
    kept = demo.environment(workers=2)
    assert "DECENTRAL_TOPOLOGY" not in kept
    assert "WORLD_SIZE" not in kept


def test_a_folder_without_a_run(tmp_path: Path):
    with pytest.raises(DataError, match="holds no finished run"):
        report.read_run(tmp_path)
    (tmp_path / "summary.json").write_text('{"topology": "aer", "optim"')
    with pytest.raises(DataError, match="holds no finished run"):
        report.read_run(tmp_path)


def test_a_line_half_written_is_no_step(tmp_path: Path):
    assert demo.steps_done(tmp_path) == 0
    (tmp_path / "metrics.jsonl").write_text('{"step": 5}\n{"ste')
    assert demo.steps_done(tmp_path) == 0
    (tmp_path / "metrics.jsonl").write_text('{"step": 5}\n')
    assert demo.steps_done(tmp_path) == 5


def test_a_picture_that_cannot_be_written(tmp_path: Path):
    runs = [report.Finished("x", {}, [{"tokens": 1, "seconds": 1.0, "train_loss": 2.0}])]
    with pytest.raises(SettingsError, match="cannot be written"):
        report.plot(runs, tmp_path / "a.nosuchkind")
