"""What a Trainer can do besides: precision, checkpointing, compiled models, losses of the user's own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import TrainerCallback

from hf_decentral.trainer import DecentralizedTrainer, DecentralizedTrainingArguments
from tests.processes import outcomes, run
from tests.trainer.runs import Replicas, Rows, model, settings, stock, trainer, weights

pytestmark = pytest.mark.processes


def _trained(rank: int, folder: str, changed: dict[str, Any]) -> tuple[Tensor, float, list[Any]]:
    made = trainer(folder, **{"topology": "ring", "optim": "dadamw", "max_steps": 4, **changed})
    before = made.evaluate()["eval_loss"]
    made.train()
    predicted = made.predict(Rows(5)).predictions
    after = made.evaluate()["eval_loss"]
    assert after < before and len(predicted) in (4, 5)  # 4: one row of 5 is dropped
    return weights(made.model), after, [line["loss"] for line in made.state.log_history if "loss" in line]


@pytest.mark.parametrize(
    "changed",
    [
        {"bf16": True},
        {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": True}},
        {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": False}},
        {"torch_compile": True, "torch_compile_backend": "eager"},
        {"train_sampling_strategy": "group_by_length"},
        {"dataloader_drop_last": True, "per_device_eval_batch_size": 1},
        {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 2},
        {"neftune_noise_alpha": 1.0, "label_smoothing_factor": 0.1},
    ],
    ids=[
        "bf16",
        "reentrant",
        "not reentrant",
        "compiled",
        "by length",
        "drop last",
        "plateau",
        "noise and smoothing",
    ],
)
def test_what_a_trainer_can_do_works_with_gossip(tmp_path: Path, changed: dict[str, Any]) -> None:
    first, second = run(2, _trained, str(tmp_path), changed)
    assert torch.equal(first[0], second[0]) and first[1:] == second[1:]


def _alone(rank: int, folder: str) -> tuple[Tensor, Tensor]:
    theirs = stock(folder, optim="adamw_torch")
    theirs.train()
    ours = trainer(folder, optim="adamw_torch", topology="ring")
    ours.train()
    return weights(theirs.model), weights(ours.model)


def test_one_worker_with_a_topology_is_the_stock_trainer(tmp_path: Path) -> None:
    ((theirs, ours),) = run(1, _alone, str(tmp_path))
    assert torch.equal(theirs, ours)


class Own(DecentralizedTrainer):
    """A loss of the user's own, as a mean over the batch."""

    loss_is_scaled_for_ga = False

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = {"input_ids": inputs["input_ids"], "labels": inputs["input_ids"]}
        return model(**inputs).loss


def _sum(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    logits = outputs.logits[:, :-1].flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(
        logits, labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )
    return loss / num_items_in_batch


def _one_window(rank: int, folder: str, kind: str) -> tuple[Tensor, Tensor]:
    """A worker's own step on a window of two micro-batches, and the same by hand on one batch."""
    replicas, rows = Replicas(), []
    args = DecentralizedTrainingArguments(
        **settings(folder, optim="dsgd", topology="complete", gradient_accumulation_steps=2, max_steps=1,
                   max_grad_norm=0.0, lr_scheduler_type="constant")
    )  # fmt: skip

    def collate(batch: list[Any]) -> dict[str, Tensor]:
        rows.extend(batch)
        return {name: torch.stack([row[name] for row in batch]) for name in batch[0]}

    made = (Own if kind == "compute_loss" else DecentralizedTrainer)(
        model(), args, collate, Rows(), callbacks=[replicas],
        compute_loss_func=_sum if kind == "compute_loss_func" else None,
    )  # fmt: skip
    made.train()
    by_hand = model()
    start = weights(by_hand)
    ids = torch.stack([row["input_ids"] for row in rows[:4]])
    labels = ids if kind == "compute_loss" else torch.stack([row["labels"] for row in rows[:4]])
    by_hand(input_ids=ids, labels=labels).loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in by_hand.parameters() if p.grad is not None])
    return replicas.seen[0] - start, -1e-2 * gradient


@pytest.mark.parametrize("kind", ["the model's", "compute_loss", "compute_loss_func"])
def test_an_accumulated_window_is_one_batch_of_the_worker_s_own_tokens(tmp_path: Path, kind: str) -> None:
    for step, by_hand in run(2, _one_window, str(tmp_path), kind):
        torch.testing.assert_close(step, by_hand, atol=1e-7, rtol=1e-4)


def _quiet(rank: int, folder: str) -> list[str]:
    calls: list[str] = []
    made = trainer(folder, optim="dsgd", topology="ring", max_steps=6, logging_steps=100)

    class Watch(TrainerCallback):
        decides_alike = True

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                for name in (
                    "all_gather",
                    "all_gather_into_tensor",
                    "all_reduce",
                    "all_gather_object",
                    "broadcast",
                ):
                    own = getattr(dist, name)
                    setattr(
                        dist, name, lambda *a, own=own, name=name, **k: calls.append(name) or own(*a, **k)
                    )

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 4:
                calls.append("end")

    made.add_callback(Watch())
    made.train()
    return calls[: calls.index("end")]


def test_no_step_gathers_anything(tmp_path: Path) -> None:
    assert run(4, _quiet, str(tmp_path)) == [[]] * 4  # on fewer the ring is a mean, by an all_reduce


def _bad(rank: int, folder: str) -> Any:
    class Bad(TrainerCallback):
        def on_pre_optimizer_step(
            self, args: Any, state: Any, control: Any, model: Any = None, **k: Any
        ) -> None:
            if rank == 1 and state.global_step == 2:
                next(model.parameters()).grad.fill_(float("nan"))

    made = trainer(folder, optim="dadamw", topology="ring", max_grad_norm=0.0, callbacks=[Bad()])
    made.train()
    return weights(made.model), [handle.skipped for handle in made.plugin.handles]


def test_a_nan_of_one_worker_costs_its_own_update_only(tmp_path: Path) -> None:
    (first, none), (second, one) = run(2, _bad, str(tmp_path))
    assert torch.isfinite(first).all() and torch.equal(first, second)
    assert (none, one) == ([0], [1])


def _killed(rank: int, folder: str) -> None:
    class Dies(TrainerCallback):
        decides_alike = True

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if rank == 1 and state.global_step == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    trainer(folder, optim="dsgd", topology="ring", comm_timeout=20.0, callbacks=[Dies()]).train()


def test_a_killed_worker_is_named(tmp_path: Path) -> None:
    first, second = outcomes(2, _killed, str(tmp_path))
    assert "PeerLost" in first.error and "worker 1" in first.error.lower()
    assert second.exit_code == -signal.SIGKILL


def _twice(rank: int, folder: str) -> list[tuple[Tensor, list[dict[str, float]]]]:
    made = trainer(folder, optim="dadamw", topology="ring")
    found = []
    for _ in range(2):
        made.train()
        found.append((weights(made.model), [line for line in made.state.log_history if "loss" in line]))
    return found


def test_a_trainer_may_train_twice_and_counts_anew(tmp_path: Path) -> None:
    first, second = run(2, _twice, str(tmp_path))
    (before, _), (after, logs) = first
    assert torch.equal(after, second[1][0]) and not torch.equal(before, after)
    size = after.numel() * after.element_size()
    # On two workers a round sends the model once. That before the first step was under way already.
    assert [line["sent_bytes"] for line in logs] == [size * line["step"] for line in logs]
    assert all(line["waited_seconds"] >= 0 for line in logs)
