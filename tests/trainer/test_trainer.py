"""The Trainer: stock under All-Reduce, gossip elsewhere, the consensus wherever somebody looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2LMHeadModel

from hf_decentral.trainer import DecentralizedTrainer
from tests.processes import outcomes, run
from tests.trainer.runs import Replicas, Rows, stock, trainer, weights

pytestmark = pytest.mark.processes


def _against_stock(rank: int, folder: str, changed: dict[str, Any]) -> tuple[Any, ...]:
    found = []
    for make in (stock, trainer):
        own = {"topology": "allreduce"} if make is trainer else {}
        made = make(Path(folder) / f"{make.__name__}", **changed, **own)
        made.train()
        logs = [{k: v for k, v in line.items() if "second" not in k and "runtime" not in k}
                for line in made.state.log_history]  # fmt: skip
        found.append((weights(made.model), logs, made.evaluate()["eval_loss"]))
    return tuple(found)


@pytest.mark.parametrize(
    "changed", [{"optim": "adamw_torch"}, {"optim": "sgd", "gradient_accumulation_steps": 2}]
)
def test_allreduce_is_the_stock_trainer_bit_for_bit(tmp_path: Path, changed: dict[str, Any]) -> None:
    for theirs, ours in run(2, _against_stock, str(tmp_path), changed):
        assert torch.equal(theirs[0], ours[0])
        assert theirs[1:] == ours[1:]


def _trained(rank: int, folder: str, changed: dict[str, Any]) -> dict[str, Any]:
    replicas = Replicas()
    made = trainer(folder, callbacks=[replicas], **changed)
    made.train()
    after = weights(made.model)
    evaluated = made.evaluate()["eval_loss"]
    made.save_model(str(Path(folder) / "model"))
    return {"last": replicas.seen[-1], "after": after, "eval": evaluated, "logs": made.state.log_history}


@pytest.mark.parametrize("optim", ["accumadam", "adamw_torch", "dsgd", "dmuon"])
def test_workers_differ_while_they_train_and_end_as_the_consensus(tmp_path: Path, optim: str) -> None:
    found = run(3, _trained, str(tmp_path), {"optim": optim, "topology": "ring"})
    last = torch.stack([each["last"] for each in found])
    assert not torch.equal(last[0], last[1])
    for each in found:
        assert torch.equal(each["after"], found[0]["after"])
        assert each["eval"] == found[0]["eval"]
    # the exchange that is under way at the end keeps the mean
    torch.testing.assert_close(found[0]["after"], last.mean(0), atol=1e-6, rtol=0)
    saved = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    assert torch.equal(weights(saved), found[0]["after"])


def test_logs_tell_of_all_workers(tmp_path: Path) -> None:
    found = run(2, _trained, str(tmp_path), {"optim": "dadamw", "topology": "complete"})
    lines = [line for line in found[0]["logs"] if "loss" in line]
    assert len(lines) == 3
    for line in lines:
        assert line["loss_worker_min"] < line["loss"] < line["loss_worker_max"]
        assert line["consensus_distance"] > 0 and line["sent_bytes"] > 0 and line["waited_seconds"] >= 0
    assert lines[0]["sent_bytes"] < lines[-1]["sent_bytes"]


def _evaluated(rank: int, folder: str) -> dict[str, Any]:
    replicas = Replicas()
    every = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}
    made = trainer(folder, topology="ring", optim="dadamw", callbacks=[replicas], **every)
    made.train()
    return {"seen": replicas.seen, "logs": made.state.log_history}


def test_evaluation_and_checkpoints_in_training_hold_the_consensus(tmp_path: Path) -> None:
    found = run(3, _evaluated, str(tmp_path))
    saved = load_file(tmp_path / "checkpoint-3" / "model.safetensors")
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "checkpoint-3").eval()
    mean = torch.stack([each["seen"][2] for each in found]).mean(0)
    torch.testing.assert_close(weights(model), mean, atol=1e-6, rtol=0)
    assert "lm_head.weight" not in saved  # tied, as transformers writes it
    rows = Rows(9)
    losses = [model(**{k: v[None] for k, v in rows[k].items()}).loss.item() for k in range(9)]
    told = next(line["eval_loss"] for line in found[0]["logs"] if "eval_loss" in line)
    assert abs(told - sum(losses) / 9) < 0.02  # a mean over tokens there, over rows here


def _saved_alone(rank: int, folder: str, when: str) -> str:
    class Alone(Replicas):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if rank == 0 and state.global_step == 2 and when == "in training":
                made.save_model(folder)

    made: DecentralizedTrainer = trainer(
        folder, topology="ring", optim="dsgd", comm_timeout=5.0, callbacks=[Alone()]
    )
    made.train()
    if rank == 0 and when == "after training":
        made.save_model(folder)
    return "ended"


def test_one_worker_may_save_alone_after_training(tmp_path: Path) -> None:
    assert run(2, _saved_alone, str(tmp_path), "after training") == ["ended", "ended"]
    assert (tmp_path / "model.safetensors").is_file()


def test_one_worker_that_saves_alone_in_training_is_told(tmp_path: Path) -> None:
    first, second = outcomes(2, _saved_alone, str(tmp_path), "in training")
    assert "called save_model(), and not every worker did" in first.error
    assert "is_world_process_zero" in first.error
    assert second.error


@pytest.mark.parametrize(("algorithm", "period"), [("slowmo", 2), ("osgp", None), ("oldsgd", 2)])
def test_an_algorithm_by_name(tmp_path: Path, algorithm: str, period: int | None) -> None:
    """Its optimizer, order and rounds are taken where nothing else is asked for."""
    found = run(3, _trained, str(tmp_path), {"algorithm": algorithm, "period": period, "max_steps": 7})
    last = torch.stack([each["last"] for each in found])
    assert not torch.equal(last[0], last[1])
    for each in found:
        assert torch.equal(each["after"], found[0]["after"])
        assert each["eval"] == found[0]["eval"]
