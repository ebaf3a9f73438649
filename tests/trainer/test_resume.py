"""Stop and go on: bit for bit with the same workers, from the consensus with others."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor
from transformers import TrainerCallback

from hf_decentral.errors import CheckpointError
from tests.processes import outcomes, run
from tests.trainer.runs import Replicas, stock, trainer, weights

pytestmark = pytest.mark.processes
SAVING = {
    "save_strategy": "steps",
    "save_steps": 3,
    "topology": "aer",
    "dropout": 0.1,
    "optim": "accumadam",
    "accum": 2,
}


def _seen(rank: int, folder: str, resume: Any, changed: dict[str, Any]) -> list[Tensor]:
    replicas, changed = Replicas(), dict(changed)
    frozen = changed.pop("frozen", False)
    made = trainer(folder, callbacks=[replicas], **{**SAVING, **changed})
    if frozen:
        positions = made.model.transformer.wpe.weight.requires_grad_(False)
        positions.data += 1.0 if resume else 0.0  # they too come from the checkpoint
    made.train(resume_from_checkpoint=resume)
    return [*replicas.seen, weights(made.model)]


@pytest.mark.parametrize(
    "changed",
    [
        {"max_steps": 8, "hosts": "1,1,1", "save_steps": 6, "lr_scheduler_type": "cosine"},
        {"save_only_model": True, "topology": "ring", "frozen": True},
        {"gradient_accumulation_steps": 2, "optim": "adamw_torch", "topology": "every(2, ring)"},
    ],
    ids=["second epoch", "save_only_model, frozen weights", "accumulation"],
)
def test_three_workers_go_on_bit_for_bit(tmp_path: Path, changed: dict[str, Any]) -> None:
    whole = run(3, _seen, str(tmp_path / "whole"), None, changed)
    at = changed.get("save_steps", 3)
    shutil.copytree(tmp_path / "whole" / f"checkpoint-{at}", tmp_path / "stopped" / f"checkpoint-{at}")
    again = run(3, _seen, str(tmp_path / "stopped"), True, changed)
    for before, after in zip(whole, again, strict=True):
        assert len(after) == len(before) - at
        for a, b in zip(before[at:], after, strict=True):
            assert torch.equal(a, b)


def test_other_numbers_of_workers_go_on_from_the_consensus(tmp_path: Path) -> None:
    whole = run(3, _seen, str(tmp_path), None, {})
    shutil.rmtree(tmp_path / "checkpoint-6")
    mean = torch.stack([seen[2] for seen in whole]).mean(0)
    for workers in (2, 5):
        shutil.copytree(tmp_path / "checkpoint-3", tmp_path / f"of {workers}" / "checkpoint-3")
        for seen in run(workers, _seen, str(tmp_path / f"of {workers}"), True, {}):
            torch.testing.assert_close(seen[0], mean, atol=2e-2, rtol=0)  # after one step at 1e-2
            assert torch.isfinite(seen[-1]).all()


def _two_disks(rank: int, folder: str) -> tuple[list[Tensor], list[Tensor], list[str]]:
    """Two hosts that share no disk: a checkpoint at each of many steps, and going on from one of them."""
    host = f"host{rank // 2}"
    socket.gethostname = lambda: host
    os.environ.update(LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2")
    mine = Path(folder) / host
    often = {"save_steps": 1, "save_on_each_node": True, "max_steps": 12, "topology": "ring"}
    whole = _seen(rank, str(mine), None, often)
    shutil.rmtree(mine / "checkpoint-12", ignore_errors=True)
    dist.barrier()
    again = _seen(rank, str(mine), str(mine / "checkpoint-7"), often)
    return whole, again, sorted(path.name for path in (mine / "checkpoint-11").glob("decentral*"))


def test_hosts_that_share_no_disk(tmp_path: Path) -> None:
    """C1: no name of a folder is waited for that another host was to write."""
    for rank, (whole, again, names) in enumerate(run(4, _two_disks, str(tmp_path))):
        assert len(whole) == 13 and all(torch.equal(a, b) for a, b in zip(whole[7:], again, strict=True))
        own = [f"decentral_worker_{k}.pt" for k in (rank // 2 * 2, rank // 2 * 2 + 1)]
        assert names == ["decentral.json", *own]


def _stock(rank: int, folder: str) -> None:
    stock(folder, save_strategy="steps", save_steps=3).train()


def test_a_checkpoint_of_the_stock_trainer_serves_too(tmp_path: Path) -> None:
    run(2, _stock, str(tmp_path))
    shutil.rmtree(tmp_path / "checkpoint-6")
    seen = run(2, _seen, str(tmp_path), True, {"optim": "adamw_torch", "topology": "ring"})
    assert len(seen[0]) == 4 and torch.isfinite(seen[0][-1]).all()


def test_a_folder_that_is_not_whole_is_passed_over_or_refused(tmp_path: Path) -> None:
    run(2, _seen, str(tmp_path), None, {})
    last = tmp_path / "checkpoint-6"
    (last / "decentral.json").unlink()  # a kill in the middle of saving
    assert len(run(2, _seen, str(tmp_path), "True", {})[0]) == 4  # as the command line gives it
    shutil.rmtree(last)
    for outcome in outcomes(2, _seen, str(tmp_path), str(last), {}):
        assert "CheckpointError: " in outcome.error and "there is no folder" in outcome.error
    file = tmp_path / "checkpoint-3" / "decentral_worker_1.pt"
    file.write_bytes(file.read_bytes()[:-10])
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for outcome in outcomes(2, _seen, str(tmp_path), True, {}):
        assert "cannot be loaded" in outcome.error and "worker 1: decentral_worker_1.pt has" in outcome.error
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept


def _failing(rank: int, folder: str) -> str:
    made = trainer(folder, **{**SAVING, "max_steps": 3})
    made.train()
    replaced = torch.save
    if rank == 1:

        def full(*args: Any, **kwargs: Any) -> None:
            raise OSError(28, "No space left on device")

        torch.save = full
    try:
        made._save_checkpoint(made.model, None)
    except CheckpointError as error:
        return str(error)
    finally:
        torch.save = replaced
    return ""


def test_a_full_disk_on_one_worker_is_told_to_all_and_the_former_checkpoint_stays(tmp_path: Path) -> None:
    for said in run(2, _failing, str(tmp_path)):
        assert "was not written (worker 1: OSError: [Errno 28] No space left on device)" in said
    assert json.loads((tmp_path / "checkpoint-3" / "decentral.json").read_text())["workers"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-3"]


def _limited(rank: int, folder: str) -> Any:
    made = trainer(
        folder, save_strategy="steps", save_steps=1, eval_strategy="steps", eval_steps=1, topology="ring",
        optim="dsgd", save_total_limit=1, load_best_model_at_end=True, learning_rate=0.3,
    )  # fmt: skip
    made.train()
    return (
        weights(made.model),
        made.state.best_model_checkpoint,
        made.evaluate()["eval_loss"],
        made.state.best_metric,
    )


def test_the_best_consensus_is_loaded_at_the_end(tmp_path: Path) -> None:
    found = run(2, _limited, str(tmp_path))
    assert torch.equal(found[0][0], found[1][0])
    for _, folder, loss, best in found:
        assert Path(folder).is_dir() and abs(loss - best) < 1e-6


def _spoiled(rank: int, folder: str) -> None:
    class Spoils(TrainerCallback):
        decides_alike = True

        def on_pre_optimizer_step(
            self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
        ) -> None:
            if rank == 1 and state.global_step == 2:
                optimizer.param_groups[0]["lr"] = float("nan")

    trainer(
        folder, save_strategy="steps", save_steps=1, save_total_limit=1, topology="ring", optim="dsgd",
        max_steps=5, callbacks=[Spoils()],
    ).train()  # fmt: skip


def test_the_last_finite_checkpoint_stays(tmp_path: Path) -> None:
    run(2, _spoiled, str(tmp_path))
    finite = {}
    for folder in tmp_path.glob("checkpoint-*"):
        weights_there = load_file(folder / "model.safetensors").values()
        finite[folder.name] = all(bool(value.isfinite().all()) for value in weights_there)
        assert json.loads((folder / "decentral.json").read_text())["finite"] is finite[folder.name]
    assert finite == {"checkpoint-2": True, "checkpoint-5": False}
