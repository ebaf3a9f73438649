"""A worker that dies or errs, data that is not there, calls of one worker: all are told, and nobody hangs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Subset
from transformers import TrainerCallback

from tests.processes import outcomes, run
from tests.trainer.runs import Rows, trainer

pytestmark = pytest.mark.processes
GOSSIP = {"topology": "ring", "optim": "dsgd", "comm_timeout": 20.0}
OFTEN = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}


def _dies(rank: int, folder: str, worker: int, event: str) -> None:
    def at(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3 or event == "on_train_begin":
            os.kill(os.getpid(), signal.SIGKILL)

    dies: TrainerCallback = type("Dies", (TrainerCallback,), {event: at, "decides_alike": True})()
    trainer(folder, callbacks=[dies] if rank == worker else [], **GOSSIP, **OFTEN).train()


@pytest.mark.parametrize(
    ("worker", "event"),
    [
        (1, "on_train_begin"),
        (0, "on_step_begin"),
        (2, "on_prediction_step"),
        (1, "on_save"),
    ],
)
def test_a_worker_killed_at_any_time_is_named_by_the_others(tmp_path: Path, worker: int, event: str) -> None:
    found = outcomes(3, _dies, str(tmp_path), worker, event, timeout=60)
    assert found[worker].exit_code == -signal.SIGKILL
    for outcome in [each for rank, each in enumerate(found) if rank != worker]:
        last = outcome.error.splitlines()[-3].lower()
        assert f"worker {worker} did not answer" in last, outcome.error
        assert "gloo/" not in last  # where in its sources the wire failed helps nobody


def _outside(rank: int, folder: str, when: str) -> None:
    made = trainer(folder, **GOSSIP)
    if when == "after training":
        made.train()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    made.train() if when == "before training" else made.evaluate()


@pytest.mark.parametrize("when", ["before training", "before an evaluation", "after training"])
def test_a_worker_killed_outside_of_training_is_named(tmp_path: Path, when: str) -> None:
    found = outcomes(3, _outside, str(tmp_path), when, timeout=60)
    for outcome in (found[0], found[2]):
        assert "worker 1 did not answer" in outcome.error.splitlines()[-3].lower(), outcome.error


def _errs(rank: int, folder: str, where: str) -> None:
    made = trainer(folder, **GOSSIP, **OFTEN)
    collate, calls = made.data_collator, 0

    def broken(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        if rank == 1 and calls == (3 if where == "in training" else 1):
            raise KeyError("a row without labels")
        return collate(rows)

    made.data_collator = broken
    made.evaluate() if where == "in an evaluation" else made.train()


@pytest.mark.parametrize("where", ["in training", "in an evaluation"])
def test_an_error_of_one_worker_is_its_own_and_the_others_name_it(tmp_path: Path, where: str) -> None:
    found = outcomes(3, _errs, str(tmp_path), where, timeout=60)
    assert "KeyError: 'a row without labels'" in found[1].error
    for outcome in (found[0], found[2]):
        assert "worker 1 did not answer" in outcome.error.splitlines()[-3].lower(), outcome.error


def _empty(rank: int, folder: str, workers: list[int]) -> None:
    data = Subset(Rows(), []) if rank in workers else Rows()
    trainer(folder, train_dataset=data, **GOSSIP).train()


@pytest.mark.parametrize("workers", [[1], [0, 1, 2]])
def test_an_empty_data_set_is_told_to_all(tmp_path: Path, workers: list[int]) -> None:
    for outcome in outcomes(3, _empty, str(tmp_path), workers):
        told = f"holds no rows (workers {', '.join(map(str, workers))} of 3)"
        assert told in outcome.error and "DataError" in outcome.error


def test_an_empty_data_set_of_one_worker(tmp_path: Path) -> None:
    (outcome,) = outcomes(1, _empty, str(tmp_path), [0])
    assert "DataError: train_dataset holds no rows" in outcome.error


def _alone(rank: int, folder: str, when: str) -> None:
    class Alone(TrainerCallback):
        decides_alike = True

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if rank == 0 and state.global_step == 2:
                made.predict(Rows(3))

    made = trainer(
        folder, callbacks=[Alone()] if when == "in training" else [], **{**GOSSIP, "comm_timeout": 4.0}
    )
    if rank == 0 and when == "before training":
        made.evaluate()
    made.train()
    if rank == 0 and when == "after training":
        made.evaluate()


@pytest.mark.parametrize("when", ["before training", "in training", "after training"])
def test_an_evaluation_of_one_worker_alone_is_told(tmp_path: Path, when: str) -> None:
    first, second = outcomes(2, _alone, str(tmp_path), when, timeout=60)
    assert "Worker 0 called evaluate() or predict(), and not every worker did" in first.error
    assert second.error or when == "after training"  # it had all it wanted


def _predicted(rank: int, folder: str, rows: list[int]) -> int:
    return len(trainer(folder, **GOSSIP).predict(Rows(rows[rank])).predictions)


def test_workers_that_evaluate_different_data_are_told(tmp_path: Path) -> None:
    for outcome in outcomes(3, _predicted, str(tmp_path), [9, 9, 70], timeout=60):
        assert "disagree on the data to evaluate: worker 2 has 3 batches of 70 rows" in outcome.error
        assert "1 batch of 9 rows" in outcome.error


def _counted(rank: int, folder: str) -> list[Any]:
    """Predictions for few rows and many, as a dictionary of lists, and the labels that came with them."""
    made = trainer(folder, **GOSSIP)
    outputs = made.model.forward

    def nested(input_ids: Any, labels: Any, **_: Any) -> dict[str, Any]:
        found = outputs(input_ids=input_ids, labels=labels)
        return {"loss": found.loss, "parts": {"logits": found.logits, "first": [input_ids[:, 0]]}}

    made.model.forward = nested
    found = []
    for rows in (1, 7, 26):
        told = made.predict(Rows(rows))
        assert len(told.predictions["logits"]) == len(told.label_ids) == rows
        first = told.predictions["first"][0]
        found.append(first.tolist())
    return found


def test_every_row_is_predicted_once_and_in_order(tmp_path: Path) -> None:
    """Also where outputs are nested, and where there are more workers than rows (B9)."""
    found = run(5, _counted, str(tmp_path))
    expected = [Rows(rows).ids[:, 0].tolist() for rows in (1, 7, 26)]
    assert found == [expected] * 5
