"""Streams of unknown length from `datasets`: every row is read, and a run goes on where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.processes import run
from tests.trainer.runs import LENGTH, VOCABULARY, Replicas, trainer, weights

pytestmark = pytest.mark.processes
ROWS = 10  # in a shard


def _rows(shards: list[int]) -> Iterator[dict[str, list[int]]]:
    for shard in shards:
        for row in range(ROWS):
            ids = [(shard * ROWS + row + k) % VOCABULARY for k in range(LENGTH)]
            yield {"input_ids": ids, "labels": ids}


def _stream(shards: int) -> Any:
    # What the generator is given is cut into shards, as files are.
    made = datasets.IterableDataset.from_generator(_rows, gen_kwargs={"shards": list(range(shards))})
    return made.shuffle(seed=5, buffer_size=4)


def _seen(folder: str, resume: Any, changed: dict[str, Any]) -> list[Tensor]:
    replicas = Replicas()
    made = trainer(
        folder, train_dataset=_stream(2), callbacks=[replicas], topology="ring", optim="dsgd",
        save_strategy="steps", **changed,
    )  # fmt: skip
    made.train(resume_from_checkpoint=resume)
    return [*replicas.seen, weights(made.model)]


def _stopped(rank: int, folder: str, changed: dict[str, Any]) -> list[list[Tensor]]:
    """The parameters after each step: of a whole run, of one that had ended, and of one that goes on."""
    whole = _seen(folder, None, changed)
    dist.barrier()
    ended = _seen(folder, True, changed)
    dist.barrier()
    if rank == 0:
        for checkpoint in Path(folder).glob("checkpoint-*"):
            if checkpoint.name != f"checkpoint-{changed['save_steps']}":
                shutil.rmtree(checkpoint)
    dist.barrier()
    return [whole, ended, _seen(folder, True, changed)]


@pytest.mark.parametrize(
    "changed",
    [
        {"max_steps": 8, "save_steps": 3, "dataloader_num_workers": 2},
        {"max_steps": 9, "save_steps": 7, "accelerator_config": {"dispatch_batches": False}},
        {"max_steps": 8, "save_steps": 5, "accelerator_config": {"dispatch_batches": False}},
        {
            "max_steps": 6,
            "save_steps": 4,
            "gradient_accumulation_steps": 2,
            "accelerator_config": {"dispatch_batches": False},
        },
    ],
    ids=["two loader processes", "second epoch", "between two epochs", "a rest of no whole step"],
)
def test_a_run_on_a_stream_goes_on_bit_for_bit(tmp_path: Path, changed: dict[str, Any]) -> None:
    """An epoch has 5 batches for each of the two workers; one that had ended takes no further step (J3)."""
    for whole, ended, again in run(2, _stopped, str(tmp_path), changed):
        assert len(whole) == changed["max_steps"] + 1
        assert len(ended) == 1 and torch.equal(ended[0], whole[-1])
        assert len(again) == len(whole) - changed["save_steps"]
        assert all(torch.equal(a, b) for a, b in zip(whole[changed["save_steps"] :], again, strict=True))


def _read(rank: int, folder: str, shards: int, dispatch: bool) -> list[int]:
    """The first tokens of the rows of one epoch, on this worker."""
    found: list[int] = []
    made = trainer(
        folder, train_dataset=_stream(shards), topology="ring", optim="dsgd",
        max_steps=shards * ROWS // 6 + 1, accelerator_config={"dispatch_batches": dispatch},
    )  # fmt: skip
    forward = made.model.forward

    def noting(**inputs: Any) -> Any:
        found.extend(inputs["input_ids"][:, 0].tolist())
        return forward(**inputs)

    made._set_signature_columns_if_needed()
    made.model.forward = noting
    made.train()
    return found


@pytest.mark.parametrize("dispatch", [False, True])
def test_no_row_is_lost_where_shards_are_no_multiple_of_the_workers(tmp_path: Path, dispatch: bool) -> None:
    """20 rows of 2 shards for 3 workers, 6 rows a step: the fourth has the last two, and fills up (J4)."""
    found = run(3, _read, str(tmp_path), 2, dispatch)
    rows = [token for each in found for token in each]
    assert set(rows) == set(range(20))
    assert len(rows) == (21 if dispatch else 24)  # one row for each worker, or a full batch
