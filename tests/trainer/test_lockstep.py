"""Decisions of one worker, and data of different lengths: all take the same steps, and nobody hangs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, Subset
from transformers import EarlyStoppingCallback, TrainerCallback

from tests.processes import outcomes, run
from tests.trainer.runs import Rows, trainer, weights

pytestmark = pytest.mark.processes
GOSSIP = {"topology": "ring", "optim": "dsgd", "max_steps": 8, "comm_timeout": 20.0}


def _wants(event: str, flag: str) -> TrainerCallback:
    """A callback that sets a flag at one event of step 3."""

    def at(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            setattr(control, flag, True)

    made: TrainerCallback = type("Wants", (TrainerCallback,), {event: at})()
    return made


def _one_worker_wants(rank: int, folder: str, event: str, flag: str, changed: dict[str, Any]) -> Any:
    callbacks = [_wants(event, flag)] if rank == 1 else []
    made = trainer(folder, callbacks=callbacks, **{**GOSSIP, **changed})
    made.train()
    evaluated = [line["step"] for line in made.state.log_history if "eval_loss" in line]
    return made.state.global_step, evaluated, weights(made.model)


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        ("on_step_end", {}),
        ("on_step_begin", {"gradient_accumulation_steps": 2}),
        ("on_substep_end", {"gradient_accumulation_steps": 2}),
        ("on_optimizer_step", {}),
        ("on_log", {"logging_steps": 3}),
        ("on_evaluate", {"eval_strategy": "steps", "eval_steps": 3}),
        ("on_save", {"save_strategy": "steps", "save_steps": 3}),
    ],
)
def test_a_stop_of_one_worker_stops_all_at_the_same_step(
    tmp_path: Path, event: str, changed: dict[str, Any]
) -> None:
    found = run(3, _one_worker_wants, str(tmp_path), event, "should_training_stop", changed)
    assert len({steps for steps, _, _ in found}) == 1 and found[0][0] in (3, 4)
    assert torch.equal(found[0][2], found[2][2])


@pytest.mark.parametrize("flag", ["should_evaluate", "should_save", "should_log", "should_epoch_stop"])
def test_other_wishes_are_common_too(tmp_path: Path, flag: str) -> None:
    found = run(2, _one_worker_wants, str(tmp_path), "on_step_end", flag, {})
    assert [steps for steps, _, _ in found] == [8, 8]
    if flag == "should_evaluate":
        assert all(3 in evaluated for _, evaluated, _ in found)
    if flag == "should_save":
        assert (tmp_path / "checkpoint-3" / "decentral.json").is_file()


class Watches(TrainerCallback):
    """A user's callback that wants nothing, and says so."""

    decides_alike = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        pass


def _counted(rank: int, folder: str) -> int:
    made = trainer(folder, callbacks=[Watches()], **GOSSIP)
    gathers = 0
    gather = made.plugin.gather

    def counting(value: Any) -> Any:
        nonlocal gathers
        gathers += 1
        return gather(value)

    made.plugin.gather = counting  # type: ignore[method-assign]
    made.train()
    return gathers


def test_without_callbacks_that_may_want_something_no_step_waits_for_all(tmp_path: Path) -> None:
    for gathers in run(2, _counted, str(tmp_path)):
        assert gathers <= 3 + 4  # data, steps and callbacks' events once, then one a line of the log


def _early(rank: int, folder: str) -> int:
    def step() -> int:
        return int(made.state.global_step)

    made = trainer(
        folder, eval_strategy="steps", eval_steps=1, metric_for_best_model="own", greater_is_better=True,
        load_best_model_at_end=False, compute_metrics=lambda _: {"own": float(rank == 0) * step()},
        callbacks=[EarlyStoppingCallback(2)], **GOSSIP,
    )  # fmt: skip
    made.train()
    return step()


def test_early_stopping_on_a_worker_s_own_metric_stops_all(tmp_path: Path) -> None:
    assert set(run(2, _early, str(tmp_path))) == {3}


class Stream(IterableDataset):
    """A worker's own stream, of its own length."""

    def __init__(self, rows: int) -> None:
        self.rows = Rows(rows)

    def __iter__(self) -> Iterator[Any]:
        return (self.rows[k] for k in range(len(self.rows)))


def _streamed(rank: int, folder: str, rows: list[int], changed: dict[str, Any]) -> Any:
    made = trainer(
        folder, train_dataset=Stream(rows[rank]), save_strategy="epoch",
        accelerator_config={"dispatch_batches": False}, **{**GOSSIP, **changed},
    )  # fmt: skip
    # Each worker reads its own stream, as with datasets.distributed.split_dataset_by_node.
    made.accelerator.prepare_data_loader = lambda loader, **_: loader  # type: ignore[method-assign]
    made.train()
    return made.state.global_step, weights(made.model)


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        ([20, 6, 12], {}),
        ([10, 18, 18], {"gradient_accumulation_steps": 3, "max_steps": 3}),
        ([40, 40, 40], {}),
    ],
    ids=["one ends early", "in the middle of a window", "longer than the run"],
)
def test_streams_of_unknown_length(tmp_path: Path, rows: list[int], changed: dict[str, Any]) -> None:
    found = run(3, _streamed, str(tmp_path), rows, changed)
    assert {steps for steps, _ in found} == {changed.get("max_steps", 8)}
    assert torch.equal(found[0][1], found[2][1])


def test_a_stream_too_short_for_a_step_is_told_to_all(tmp_path: Path) -> None:
    for outcome in outcomes(2, _streamed, str(tmp_path), [4, 9], {"gradient_accumulation_steps": 3}):
        assert "the data of workers 0 ended after 2 batches" in outcome.error.lower()


def _uneven(rank: int, folder: str, rows: list[int]) -> Any:
    data = Subset(Rows(), range(rows[rank]))
    made = trainer(folder, train_dataset=data, **{**GOSSIP, "max_steps": -1, "num_train_epochs": 2})
    made.accelerator.prepare_data_loader = lambda loader, **_: loader  # type: ignore[method-assign]
    made.train()
    return made.state.global_step


def test_loaders_of_different_lengths_take_the_steps_of_the_shortest(tmp_path: Path) -> None:
    assert run(2, _uneven, str(tmp_path), [20, 7]) == [8, 8]


def test_a_worker_without_a_batch_is_named(tmp_path: Path) -> None:
    for outcome in outcomes(2, _nothing, str(tmp_path)):
        assert "of 2 workers, 0, 1 found no batch to train on" in outcome.error.lower()


def _nothing(rank: int, folder: str) -> None:
    trainer(folder, train_dataset=Rows(1), dataloader_drop_last=True, **GOSSIP).train()
