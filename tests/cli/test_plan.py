"""``hf-decentral plan`` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hf_decentral.cli import main, plan_table
from hf_decentral.cluster.measured import write
from hf_decentral.planner import plan
from tests.planner.clusters import CODINGS, cluster

ASSUMED = (
    *("--model", "gpt2", "--hosts", "4", "--workers-per-host", "4", "--link", "25gbit"),
    *("--intra-link", "pcie", "--step-ms", "245"),
)
KEYS = {
    *("topology", "codec", "step_seconds", "low", "high", "limited_by", "speedup_over_allreduce"),
    *("throughput", "hours", "cost", "sent_bytes", "rounds_to_consensus", "spectral_gap", "mark"),
}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Types ``hf-decentral plan ...``: the exit code, what was printed, what was complained of."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hf-decentral", "plan", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A measured cluster of 2 hosts with 2 workers, in the folder of the test."""
    path = tmp_path / "cluster.json"
    write(path, cluster(hosts=2, each=2, link="200mbit", codings=CODINGS))
    return str(path)


def test_from_plain_figures(typed, tmp_path: Path):
    path, launch = tmp_path / "new" / "plan.json", tmp_path / "new" / "launch.yaml"
    told = ("--steps", "600000", "--global-batch", "480", "--price", "1.2")
    code, out, _ = typed(*ASSUMED, *told, "--json", str(path), "--write", str(launch))
    assert code == 0
    found = json.loads(path.read_text())
    assert found.keys() == {"rows", "recommendation"}
    assert found["recommendation"].keys() == {"topology", "codec", "why", "speedup_over_allreduce"}
    assert all(row.keys() >= KEYS for row in found["rows"])
    steps = [row["step_seconds"] for row in found["rows"]]
    assert steps == sorted(steps)
    names = {row["topology"] for row in found["rows"]}
    assert names >= {
        "allreduce",
        "complete",
        "aer",
        "hierarchical",
        "one_peer_exponential",
        "base_graph",
        "ring",
    }
    base = next(r for r in found["rows"] if (r["topology"], r["codec"]) == ("allreduce", "plain"))
    assert base["hours"] == pytest.approx(600_000 * base["step_seconds"] / 3600)
    assert base["cost"] == pytest.approx(16 * 1.2 * base["hours"])
    advice = found["recommendation"]
    assert advice["why"] in out and "recommended:" in out
    assert "allreduce" in out and "samples/s" in out and "nothing was measured" in out
    assert yaml.safe_load(launch.read_text())["mpirun_config"]["decentral_topology"] == advice["topology"]
    assert f"accelerate launch --config_file {launch}" in out


def test_from_a_calibrated_cluster(typed, file):
    code, out, _ = typed("--cluster", file)
    assert code == 0
    assert "2 x 2 workers" in out and "note: nothing" not in out and "extrapolated" not in out


def test_what_if(typed, file):
    code, out, _ = typed("--cluster", file, "--hosts", "8", "--link", "10gbit")
    assert code == 0
    assert "2 x 2 workers were measured" in out and "8 x 2 are extrapolated" in out
    assert "10gbit between hosts" in out


def test_only_some(typed, tmp_path: Path):
    path = tmp_path / "plan.json"
    words = ("--topology", "ring,every(8, ring)", "--averaging", "plain", "--json", str(path))
    code, _, _ = typed(*ASSUMED, *words)
    assert code == 0
    assert {r["topology"] for r in json.loads(path.read_text())["rows"]} == {
        "allreduce",
        "ring",
        "every(8, ring)",
    }


def test_marks_are_told(typed):
    code, out, _ = typed(*ASSUMED, "--topology", "every(32, ring),aer", "--averaging", "plain")
    assert code == 0
    assert "mixes slowly" in out and "drift apart" in out
    assert "recommended: aer" in out


def test_one_worker(typed, tmp_path: Path):
    launch = tmp_path / "one.yaml"
    code, out, _ = typed("--params", "124M", "--step-ms", "245", "--write", str(launch))
    assert code == 0
    assert "one worker has nobody to average with" in out
    assert yaml.safe_load(launch.read_text())["num_processes"] == 1


def test_a_single_host(typed):
    code, out, _ = typed(
        "--params", "124M", "--workers-per-host", "8", "--intra-link", "nvlink", "--step-ms", "245"
    )
    assert code == 0
    assert "1 x 8 workers, 2000gbit inside" in out


def test_curves(typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from hf_decentral.planner import scaling

    few = scaling.scaling
    monkeypatch.setattr(plan_table, "scaling", lambda measured: few(measured, most=64))
    png = tmp_path / "curves.png"
    code, _, _ = typed(*ASSUMED, "--topology", "aer", "--png", str(png))
    assert code == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_launch_file_is_not_lost(typed, tmp_path: Path):
    launch = tmp_path / "mine.yaml"
    launch.write_text("precious")
    code, _, err = typed(*ASSUMED, "--write", str(launch))
    assert code == 2 and "--force" in err and launch.read_text() == "precious"
    code, _, _ = typed(*ASSUMED, "--write", str(launch), "--force")
    assert code == 0 and "precious" not in launch.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_few_rows_hold_all_reduce_and_the_advice():
    for link in ("10mbit", "1gbit", "1000gbit"):
        found = plan(cluster(hosts=4, each=4, link=link, codings=CODINGS))
        shown = {(row.topology, row.codec) for row in plan_table.few(found)}
        assert len(shown) <= plan_table.SHOWN
        assert ("allreduce", "plain") in shown
        assert (found.recommendation.topology, found.recommendation.codec) in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--link", "25GB/s"), "Did you mean 25gbit, or 200gbit?"),
        (("--link", "25gb"), "Did you mean 25gbit, or 200gbit?"),
        (("--link", "9000gbit"), "Did you mean 9gbit?"),
        (("--step-ms", "0.245"), "Did you mean --step-ms 245?"),
        (("--step-ms", "-1"), "milliseconds"),
        (("--step-cv", "5"), "in percent"),
        (("--step-cv", "nan"), "--step-cv"),
        (("--price", "-1"), "--price"),
        (("--hosts", "0"), "--hosts"),
        (("--workers-per-host", "-4"), "--workers-per-host"),
        (("--hosts", "100000"), "4,096 at most"),
        (("--steps", "0"), "--steps"),
        (("--global-batch", "-3"), "--global-batch"),
        (("--latency-us", "-3"), "--latency-us"),
        (("--params", "7"), "Both --model and --params"),
        (("--dtype", "int8"), "bfloat16"),
        (("--model", "gpt-2-xl"), "gpt2-xl"),
        (("--slow-worker", "99=2"), "workers below 16"),
        (("--slow-worker", "x"), "3=2"),
        (("--topology", "rign"), "Did you mean 'ring'?"),
        (("--topology", ","), "--topology"),
        (("--averaging", "int9"), "Did you mean 'int8'?"),
        (("--json", "/dev/null/x.json"), "cannot be written"),
        (("--png", "/dev/null/x.png"), "cannot be written"),
        (("--write", "/dev/null/x.yaml"), "cannot be written"),
    ],
)
def test_bad_figures_are_told_in_sentences(typed, words, said):
    code, _, err = typed(*ASSUMED, *words)
    assert code == 2
    assert said in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--model or --params"),
        (("--params", "12"), "as in 124M"),
        (("--params", "20T", "--step-ms", "99999"), "10 trillion"),
        (("--params", "124M"), "--step-ms"),
        (("--params", "124M", "--step-ms", "245", "--hosts", "2"), "--link"),
        (("--dtype", "float16", "--step-ms", "245"), "--params"),
        (("--params", "7B", "--step-ms", "2.45"), "--step-ms 2450"),
    ],
)
def test_what_is_lacking_is_asked_for(typed, words, said):
    code, _, err = typed(*words)
    assert code == 2
    assert said in " ".join(err.split())


def broken(content, **changes) -> str:
    return json.dumps({**content, **changes})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: "{", "cannot be read as a cluster"),
        (lambda c: "[1, 2]", "no version 1"),
        (lambda c: json.dumps({"cases": []}), "no version 1"),
        (lambda c: broken(c, version=0), "no version 1"),
        (lambda c: broken(c, workers=3), "hosts="),
        (lambda c: broken(c, workers=0), "workers=0"),
        (lambda c: broken(c, more=1), "more"),
        (lambda c: broken(c, work={**c["work"], "parameter_bytes": -5}), "parameter_bytes"),
        (lambda c: broken(c, cluster={**c["cluster"], "link": "25GB/s"}), "25GB/s"),
        (lambda c: broken(c, cluster={**c["cluster"], "compute": "often"}), "often"),
    ],
)
def test_files_of_something_else(typed, file, spoil, said):
    path = Path(file)
    path.write_text(spoil(json.loads(path.read_text())))
    code, _, err = typed("--cluster", file)
    assert code == 2
    assert said in " ".join(err.split())
    assert "Traceback" not in err


def test_a_file_that_is_not_there(typed, tmp_path: Path):
    code, _, err = typed("--cluster", str(tmp_path / "none.json"))
    assert code == 2 and "cannot be read as a cluster" in err


def test_another_model_needs_its_step(typed, file):
    code, _, err = typed("--cluster", file, "--model", "gpt2")
    assert code == 2 and "--step-ms" in err and "20 MB were measured" in err
    code, out, _ = typed("--cluster", file, "--model", "gpt2", "--step-ms", "900")
    assert code == 0 and "497.8 MB" in out


def test_it_brings_no_training_libraries(tmp_path: Path):
    """What makes an answer slow is importing; the libraries of the Trainer are not needed."""
    code = (
        "import sys\n"
        f"sys.argv = ['hf-decentral', 'plan', *{list(ASSUMED)!r}]\n"
        "from hf_decentral.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "heavy = {'transformers', 'accelerate', 'datasets', 'matplotlib'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert told.stdout.strip().endswith("HEAVY []")
