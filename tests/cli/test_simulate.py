"""``hf-decentral simulate`` as it is typed, with real runs of few steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_decentral.cli import main
from hf_decentral.cli.simulate_runs import Runner
from hf_decentral.cli.simulate_settings import Settings
from hf_decentral.cli.simulate_store import Store

Typed = Callable[..., tuple[int, str, str]]
SMALL = ("--dim", "5", "--steps", "6")
KEYS = {
    "problem",
    "algorithm",
    "topology",
    "workers",
    "seed",
    "steps",
    "skew",
    "lr",
    "averaging",
    "step_seconds",
    "loss",
    "optimum",
    "accuracy",
    "consensus_distance",
    "sent_bytes",
    "seconds",
    "points",
}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Typed:
    """Types ``hf-decentral simulate ...`` in a new folder: exit code, what was printed, messages."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hf-decentral", "simulate", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def result(file: str = "a.json") -> dict:
    def never(text: str) -> float:
        raise ValueError(text)

    found: dict = json.loads(Path(file).read_text(), parse_constant=never)
    return found


def test_table_plots_and_json(typed: Typed):
    lists = ("--algorithms", "dpsgd,local_sgd", "--topology", "ring,aer", "--workers", "2,4", "--seeds", "2")
    code, out, _ = typed(*SMALL, *lists, "--lr", "0.2,local_sgd=0.1", "--json", "a.json", "--out", "o")
    assert code == 0
    runs = result()["runs"]
    # dpsgd on two topologies, local SGD on its own one; two numbers of workers, two seeds.
    assert len(runs) == (2 + 1) * 2 * 2
    assert result()["refused"] == []
    for run in runs:
        assert run.keys() >= KEYS
        assert run["points"][0]["step"] == 0 and run["points"][-1]["step"] == run["steps"] == 6
        assert run["optimum"] < run["loss"] == run["points"][-1]["loss"] < run["points"][0]["loss"]
        assert run["sent_bytes"] > 0 and run["step_seconds"] > 0 and run["seconds"] is None
        assert run["lr"] == {"dpsgd": 0.2, "local_sgd": 0.1}[run["algorithm"]]
    assert {run["topology"] for run in runs} == {"ring", "aer", "every(4, complete)"}
    assert out.count("│ local_sgd") == 2 and out.count("│ dpsgd") == 4
    assert "±" in out and "could not run" not in out
    drawn = sorted(path.name for path in Path("o").glob("*.png"))
    assert drawn == ["consensus_bytes.png", "consensus_steps.png", "loss_bytes.png", "loss_steps.png"]
    assert Path("o/loss_steps.png").read_bytes().startswith(b"\x89PNG")


def test_settings_reach_the_runs(tmp_path: Path):
    def only(**changes: Any) -> dict[str, Any]:
        asked = {"algorithms": "dpsgd", "workers": "4", "dim": 5, "steps": 6, **changes}
        (made,) = Runner(Settings(**asked), Store(tmp_path)).run().runs
        return made

    plain = only()
    for changes, key in (
        ({"averaging": "int8"}, "sent_bytes"),
        ({"order": "awc"}, "consensus_distance"),
        ({"batch": 64}, "loss"),
        ({"skew": "0.1"}, "consensus_distance"),
        ({"lr": "0.01"}, "loss"),
        ({"seeds": "3,"}, "loss"),
        ({"topology": "complete"}, "consensus_distance"),
        ({"dim": 6}, "loss"),
    ):
        assert only(**changes)[key] != plain[key], changes
    assert only(algorithms="local_sgd", period=3)["topology"] == "every(3, complete)"
    assert [point["step"] for point in only(record=3)["points"]] == [0, 3, 6]


def test_a_clock_gives_times_and_its_plots(typed: Typed):
    lists = ("--algorithms", "dpsgd", "--topology", "ring", "--workers", "4", "--skew", "iid,0.1")
    clock = ("--compute", "0.5", "--bandwidth", "1mbit", "--latency", "0.25", "--slow-worker", "3=2")
    code, out, _ = typed(*SMALL, *lists, *clock, "--json", "a.json", "--out", "o")
    assert code == 0
    assert "virtual s" in out and "skew" in out
    runs = result()["runs"]
    assert [run["skew"] for run in runs] == [None, 0.1]
    for run in runs:
        # Six steps of which the slowest worker computes 1 s, and then a message that takes 0.25 s or more.
        assert 6 * 1.25 < run["seconds"] < 6 * 1.3
    assert Path("o/loss_time.png").is_file() and Path("o/consensus_time.png").is_file()


def test_workers_leave_and_come_and_pairs_need_no_global_step(typed: Typed):
    lists = ("--algorithms", "dpsgd,ad_psgd", "--workers", "4", "--json", "a.json")
    assert typed(*SMALL, *lists)[0] == 0
    whole = result()["runs"]
    assert [run["algorithm"] for run in whole] == ["dpsgd", "ad_psgd"]
    assert whole[0]["seconds"] is None and whole[1]["seconds"] > 0  # pairs have a clock in any case
    assert typed(*SMALL, *lists, "--deaths", "3=2", "--joins", "3=4")[0] == 0
    changed = result()["runs"]
    assert all(a["loss"] != b["loss"] for a, b in zip(whole, changed, strict=True))


def test_what_cannot_run_is_told_and_does_not_stop_the_others(typed: Typed):
    lists = ("--algorithms", "dpsgd,dadam", "--workers", "4,8", "--seeds", "2", "--slow-worker", "5=2")
    code, out, _ = typed(*SMALL, *lists, "--json", "a.json")
    assert code == 0
    found = result()
    assert [(run["workers"], run["seed"]) for run in found["runs"]] == [(8, 0)] * 2 + [(8, 1)] * 2
    # Told once for all seeds.
    assert [(each["algorithm"], each["workers"], each["seed"]) for each in found["refused"]] == [
        ("dpsgd", 4, None),
        ("dadam", 4, None),
    ]
    assert all("workers below 4" in each["reason"] for each in found["refused"])
    assert "could not run" in out and "dpsgd, dadam" in out and "workers below 4" in out


def test_a_run_that_diverges_is_told_with_its_seed(typed: Typed):
    lists = ("--algorithms", "dpsgd,dadam", "--workers", "2", "--seeds", "1", "--lr", "0.01,dpsgd=1e30")
    code, out, _ = typed(*SMALL, *lists, "--json", "a.json")
    assert code == 0
    found = result()
    assert [run["algorithm"] for run in found["runs"]] == ["dadam"]
    assert [(each["algorithm"], each["seed"]) for each in found["refused"]] == [("dpsgd", 0)]
    assert "not finite" in out


def test_nothing_that_could_run(typed: Typed):
    code, out, err = typed(*SMALL, "--workers", "2", "--slow-worker", "5=2", "--json", "a.json")
    assert code == 2
    assert "LaunchError" in err and "Traceback" not in err
    assert "workers below 2" in out
    assert result()["runs"] == [] and len(result()["refused"]) == 2


@pytest.mark.parametrize("flags", [("--seeds", "0"), ("--algorithms", "dadan"), ("--problem", "quadratics")])
def test_nonsense_is_refused_before_anything_is_made(typed: Typed, tmp_path: Path, flags: tuple[str, ...]):
    code, _, err = typed(*flags)
    assert code == 2
    assert flags[0] in err or "did you mean" in err.lower()
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_before_the_runs(typed: Typed, tmp_path: Path):
    code, _, err = typed(*SMALL, "--json", str(tmp_path))
    assert code == 2 and "cannot be written" in err
    assert not list(tmp_path.glob("runs/simulate/runs/*"))


def test_what_was_kept_is_not_made_again(typed: Typed):
    words = (*SMALL, "--algorithms", "dpsgd", "--workers", "2,4", "--json", "a.json", "--out", "o")
    assert typed(*words)[0] == 0
    first = result()["runs"]
    kept = {path.name: path.stat().st_mtime_ns for path in Path("o/runs").iterdir()}
    assert len(kept) == 2 and all(name.endswith(".json") for name in kept)

    assert typed(*words, "--resume")[0] == 0
    assert result()["runs"] == first  # also the seconds that a step took
    assert {path.name: path.stat().st_mtime_ns for path in Path("o/runs").iterdir()} == kept

    # A longer list goes on from there; a damaged file counts for nothing.
    (damaged, whole) = sorted(Path("o/runs").iterdir())
    damaged.write_text('{"about"')
    assert typed(*words, "--resume", "--seeds", "2")[0] == 0
    assert len(result()["runs"]) == 4
    now = {path.name: path.stat().st_mtime_ns for path in Path("o/runs").iterdir()}
    assert len(now) == 4 and now[whole.name] == kept[whole.name] and now[damaged.name] != kept[damaged.name]

    assert typed(*words)[0] == 0
    again = result()["runs"]
    assert [run["step_seconds"] for run in again] != [run["step_seconds"] for run in first]
    assert [run["loss"] for run in again] == [run["loss"] for run in first]


def test_help_teaches(typed: Typed):
    code, out, _ = typed("--help")
    assert code == 0
    for word in ("--skew iid,0.1", "--resume", "exponential(0.05, 0.05)", "accumadam", "quadratic"):
        assert word in out


def interrupt_the_first_steps() -> None:
    """Press Ctrl-C once a run takes its steps, which is when it answers to it in its own way."""

    def press() -> None:
        while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            time.sleep(1e-3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


def test_a_run_goes_on_from_its_checkpoint(typed: Typed):
    lists = ("--algorithms", "accumadam", "--workers", "4", "--compute", "exponential(0.05, 0.05)")
    words = (*lists, "--steps", "300", "--record", "100", "--dim", "5", "--json", "a.json")
    assert typed(*words, "--out", "whole")[0] == 0
    unbroken = result()["runs"][0]["points"]

    interrupt_the_first_steps()
    code, _, err = typed(*words, "--out", "broken")
    assert code == 130 and "--resume" in err
    (checkpoint,) = Path("broken/runs").iterdir()
    assert checkpoint.suffix == ".checkpoint"
    assert typed(*words, "--out", "broken", "--resume")[0] == 0
    assert result()["runs"][0]["points"] == unbroken
    (kept,) = Path("broken/runs").iterdir()
    assert kept.suffix == ".json"

    # It is read to go on, and only then.
    kept.unlink()
    checkpoint.write_text("damaged")
    code, _, err = typed(*words, "--out", "broken", "--resume")
    assert code == 2 and "CheckpointError" in err and "Traceback" not in err
    assert typed(*words, "--out", "broken")[0] == 0
    assert result()["runs"][0]["points"] == unbroken


def test_ctrl_c_and_the_same_again(tmp_path: Path):
    words = (
        *(
            sys.executable,
            "-m",
            "hf_decentral.cli",
            "simulate",
            "--algorithms",
            "dpsgd",
            "--workers",
            "2,4,8",
        ),
        *("--workers", "2,4,8", "--steps", "600", "--record", "300", "--dim", "5"),
        *("--json", "a.json", "--out", "o", "--resume"),
    )
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    runs = tmp_path / "o" / "runs"
    until = time.monotonic() + 120
    while not list(runs.glob("*.json")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130, told
    assert "--resume" in told and "Traceback" not in told
    kept = {path.name: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    assert 1 <= len(kept) < 3
    assert not (tmp_path / "a.json").exists()

    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "a.json").read_text())["runs"]
    assert [run["workers"] for run in found] == [2, 4, 8]
    now = {path.name: path.stat().st_mtime_ns for path in runs.iterdir()}
    assert now.keys() >= kept.keys() and len(now) == 3
    assert all(now[name] == kept[name] for name in kept)


def test_what_no_memory_holds_is_told_before_anything_is_made(typed: Typed):
    """Also where the problem alone would take minutes to draw; what fits is told."""
    code, out, _ = typed("--dim", "100000000000", "--workers", "1000", "--steps", "2", "--json", "a.json")
    assert code == 2
    assert "parameters would" in " ".join(out.split()) or "would fit" in " ".join(out.split())
