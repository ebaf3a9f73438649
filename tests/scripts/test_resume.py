"""Stop and go on: bit for bit with the same workers, from the consensus with others."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.scripts.launches import accelerate, lines, refused, run

pytestmark = pytest.mark.timeout(300)

STEPS = ("--max_steps=7", "--save_every=3", "--dropout=0.1", "--accum=2")


def replicas(checkpoint: Path) -> list[Any]:
    files = sorted(checkpoint.glob("decentral_worker_*.pt"))
    return [torch.load(file, map_location="cpu", weights_only=False) for file in files]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool((a == b).all()) if hasattr(a, "shape") else bool(a == b)


def test_four_workers_go_on_bit_for_bit_and_two_from_the_consensus(tmp_path: Path) -> None:
    whole, stopped, fewer = (tmp_path / name for name in ("whole", "stopped", "fewer"))
    before = run(accelerate("decentralized_aer.yaml"), whole, *STEPS)
    assert [p.name for p in sorted((whole / "checkpoints").glob("step_*"))] == [
        "step_00000003",
        "step_00000006",
    ]
    for copy in (stopped, fewer):
        shutil.copytree(whole, copy)
        shutil.rmtree(copy / "checkpoints" / "step_00000006")
        (copy / "summary.json").unlink()
    assert len(lines(stopped)) == 7  # of which four came after the checkpoint and must be written again
    after = run(accelerate("decentralized_aer.yaml"), stopped, *STEPS, "--resume")
    for name in ("val_loss", "train_loss", "consensus_distance", "learning_rate", "tokens"):
        assert before[name] == after[name]
    last = "checkpoints/step_00000006"
    assert after["sent_bytes"] >= before["sent_bytes"]  # what was on the way at the checkpoint is sent again
    assert after["waited_seconds"] >= lines(stopped)[2]["waited_seconds"]
    assert "topology=aer (" in stopped.with_suffix(".log").read_text()
    one, other = replicas(whole / last), replicas(stopped / last)
    assert len(one) == 4 and not same(one[0]["models"], one[1]["models"])
    for name in ("models", "optimizers", "schedulers"):
        assert same([each.get(name) for each in one], [each.get(name) for each in other])
    assert [line["step"] for line in lines(stopped)] == list(range(1, 8))
    assert [line["train_loss"] for line in lines(stopped)] == [line["train_loss"] for line in lines(whole)]

    output = run(accelerate("decentralized_aer.yaml", 2), fewer, *STEPS, "--resume")
    assert (output["workers"], output["steps"]) == (2, 7)
    assert abs(output["val_loss"] - before["val_loss"]) < 0.1
    assert "written by 4 workers" in fewer.with_suffix(".log").read_text()


def test_a_changed_rate_is_warned_of_and_the_saved_one_stays(tmp_path: Path) -> None:
    output = tmp_path / "out"
    run([sys.executable], output, "--max_steps=2", "--save_every=2", "--lr=0.001")
    with (output / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "tra')  # a kill
    summary = run(
        [sys.executable], output, "--max_steps=4", "--resume", "--lr=0.5", "--accum=2", "--clip=0.5"
    )
    told = output.with_suffix(".log").read_text()
    assert "initial_lr=0.5 was asked for; the run goes on with 0.001" in told and "accum=2 was asked" in told
    assert "max_steps is 4 from here on; the run began with 2" in told and "clip is 0.5 from here" in told
    assert "output_dir is" not in told and "lr is 0.5" not in told
    assert summary["hyperparameters"]["initial_lr"] == 0.001 and summary["hyperparameters"]["accum"] == 4
    assert [line["step"] for line in lines(output)] == [1, 2, 3, 4]


def untouched(output: Path, *arguments: str) -> str:
    """What a run says that does not begin; nothing in the folder may change."""
    kept = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    told = refused(output, *arguments)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == kept
    return told


def test_what_a_run_will_not_do_to_an_earlier_one(tmp_path: Path) -> None:
    output = tmp_path / "out"
    run([sys.executable], output, "--max_steps=4", "--save_every=2", "--topology=aer")
    assert "holds checkpoints of an earlier run" in untouched(output, "--max_steps=4")
    told = untouched(output, "--resume", "--n_embd=32", "--seed=5")
    assert "n_embd was 16 and is 32" in told and "seed was 0 and is 5" in told
    told = untouched(output, "--resume", "--validation_fraction=0.2")
    assert "validation_fraction was 0.05 and is 0.2" in told
    newest = output / "checkpoints" / "step_00000004" / "decentral_worker_0.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert "decentral_worker_0.pt has" in untouched(output, "--resume", "--max_steps=8", "--topology=aer")


def test_nothing_to_go_on_from(tmp_path: Path) -> None:
    torn = tmp_path / "out" / "checkpoints" / "step_00000003"
    torn.mkdir(parents=True)
    (torn / "model.safetensors").write_text("half")
    assert "only incomplete ones: step_00000003" in untouched(tmp_path / "out", "--resume")
