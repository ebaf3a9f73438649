"""The benchmark from the command line: short, on shaped hosts and on loopback, well fed and badly."""

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

from hf_decentral.bench import app
from hf_decentral.errors import DecentralizedError, LaunchError, SettingsError
from tests.bench.hosts import left_by, shaped

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = [sys.executable, str(ROOT / "scripts" / "benchmark.py")]
VERB = [sys.executable, "-m", "hf_decentral.cli", "bench"]
SHORT = ["--emulate-ms", "5", "--emulate-mb", "0.2", "--steps", "2", "--blocks", "2"]
KEYS = {
    "variant", "step_seconds", "low", "high", "ratio_to_ddp", "ratio_to_limit", "ratio_to_compute",
    "sent_bytes", "waited_seconds", "hidden_share", "extra_memory_bytes",
}  # fmt: skip


def environment(**more: str) -> dict[str, str]:
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    return {**{name: value for name, value in os.environ.items() if name not in dropped}, **more}


def measured(words: list[str], file: Path, **more: str) -> tuple[dict, str]:
    """The result that a benchmark wrote, and what it printed."""
    done = subprocess.run(
        [*words, "--json", str(file)], capture_output=True, text=True, env=environment(**more), timeout=240
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


@shaped
def test_on_shaped_hosts_without_the_rival(tmp_path: Path):
    (tmp_path / "decent_dp").mkdir()
    (tmp_path / "decent_dp" / "__init__.py").write_text("raise ImportError")
    words = [*SCRIPT, *SHORT, "--hosts", "2", "--workers-per-host", "1", "--link", "200mbit"]
    variants = "none,ddp,one_peer_exponential,decent_dp:complete"
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    result, told = measured([*words, "--variants", variants], tmp_path / "step.json", PYTHONPATH=path)
    none, ddp, ours = result["cases"]
    assert [case["variant"] for case in result["cases"]] == ["none", "ddp", "one_peer_exponential"]
    assert all(set(case) == KEYS for case in result["cases"])
    assert none["step_seconds"] >= 0.005
    assert none["ratio_to_limit"] == none["ratio_to_compute"] == ddp["ratio_to_ddp"] == 1.0
    assert none["sent_bytes"] < 20_000 < 190_000 < ddp["sent_bytes"]
    # The parameters with their framing, 1514 bytes for 1448.
    assert 1.04 < ours["sent_bytes"] / result["parameter_bytes"] < 1.15
    assert ours["extra_memory_bytes"] is not None
    assert all(case["waited_seconds"] >= 0 for case in result["cases"])
    assert "pip install 'hf-decentral[rivals]'" in result["left_out"]["decent_dp:complete"]
    assert "left out: decent_dp:complete" in told and "one_peer_exponential" in told
    assert not [name for name in os.listdir(tmp_path) if ".part" in name]


def test_on_loopback_with_everything(tmp_path: Path):
    words = [*VERB, "--hosts", "2", "--workers_per_host", "1", "--model", "gpt2-nano", "--block_size", "8"]
    words += ["--steps", "1", "--blocks", "1", "--variants", "ddp_tuned,ring,decent_dp:aer"]
    words += ["--plot", str(tmp_path / "step.png"), "--profile", str(tmp_path / "traces")]
    result, _ = measured(words, tmp_path / "step.json")
    none, tuned, ring = result["cases"]
    assert tuned["bucket"] in tuned["tried_seconds"]
    assert none["ratio_to_ddp"] is None  # plain ddp was not asked for
    assert ring["ratio_to_limit"] == ring["ratio_to_compute"]
    assert ring["sent_bytes"] > 0.9 * result["parameter_bytes"]
    assert "ZeroDivisionError" in result["left_out"]["decent_dp:aer"]  # theirs needs hosts of several workers
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir(tmp_path / "traces")) == ["ddp_tuned.json", "none.json", "ring.json"]
    assert json.loads((tmp_path / "traces" / "ring.json").read_text())["traceEvents"]


@shaped
def test_an_interrupted_benchmark_leaves_nothing(tmp_path: Path):
    (tmp_path / "temporary").mkdir()
    words = [
        *SCRIPT,
        *SHORT,
        "--hosts",
        "2",
        "--link",
        "200mbit",
        "--blocks",
        "100000",
        "--variants",
        "ddp,ring",
    ]
    words += ["--json", str(tmp_path / "found" / "step.json")]
    with (tmp_path / "log").open("w") as log:
        front = subprocess.Popen(
            words, stdout=log, stderr=log, env=environment(TMPDIR=str(tmp_path / "temporary")),
            start_new_session=True,
        )  # fmt: skip
    until = time.monotonic() + 120
    port = Path(f"/sys/class/net/hfd{front.pid}p0/statistics/rx_bytes")
    while not port.exists() or int(port.read_text()) < 2_000_000:  # in the middle of it
        assert time.monotonic() < until and front.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.1)
    workers = [
        each for each in psutil.Process(front.pid).children() if "hf_decentral.bench" in each.cmdline()
    ]
    assert len(workers) == 2
    front.send_signal(signal.SIGINT)
    assert front.wait(60) == 130
    assert not [worker for worker in workers if worker.is_running()]
    assert not left_by(front.pid)
    assert not os.listdir(tmp_path / "found")
    left = [name for name in os.listdir(tmp_path / "temporary") if not name.startswith("torchinductor_")]
    assert not left  # but for the cache that torch keeps for everybody
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--variants", "ddp,rign"], "ring"),
        (["--link", "quick"], "200mbit"),
        (["--link", "none", "--rate-of", "1=5mbit"], "--link"),
        (["--model", "gpt3"], "gpt2"),
        (["--emulate-ms", "5", "--slow-worker", "4"], "from 0 to 3"),
    ],
)
def test_what_cannot_be_meant_is_told_before_a_worker_starts(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SettingsError, match=told):
        app.main(words)


def test_more_workers_than_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(LaunchError, match="2000 workers need about"):
        app.main(["--hosts", "200", "--workers-per-host", "10", "--emulate-ms", "5", "--emulate-mb", "5000"])


def test_a_result_that_cannot_be_written_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(DecentralizedError, match="cannot be written"):
        app.main(["--emulate-ms", "5", "--json", str(tmp_path)])


def test_flags_that_contradict_the_launcher(monkeypatch: pytest.MonkeyPatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match="a run of 2 workers"):
        app.main(["--hosts", "4"])


def test_an_error_is_told_without_a_traceback():
    done = subprocess.run(
        [*SCRIPT, "--link", "quick"], capture_output=True, text=True, env=environment(), timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.startswith("SettingsError: 'quick' was given")
    assert "Traceback" not in done.stderr


def test_help_teaches():
    done = subprocess.run([*VERB, "--help"], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0
    assert "200mbit" in done.stdout and "--emulate_ms" in done.stdout and "--workers-per-host" in done.stdout
