"""Checkpoints of replicas: exact, whole or not at all, and never in the place of a good one."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import load_checkpoint_in_model
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration

from hf_decentral.errors import CheckpointError, DecentralizedError
from hf_decentral.integrations.folder import Aside, read_manifest
from hf_decentral.optim import gossip
from tests.integrations.loops import Run, mean, model, same
from tests.processes import run

pytestmark = pytest.mark.processes


class Counter:
    """Something that a user registered."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def _scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=3)


def _made(topology: str, **settings: Any) -> tuple[Run, Counter]:
    r, counter = Run(topology, name="accumadamw", scaler=_scaler(), **settings), Counter()
    r.accelerator.register_for_checkpointing(counter)
    return r, counter


def _end(r: Run) -> dict[str, Any]:
    optimizer = r.optimizer.state_dict()
    return {
        "state": r.state(),
        "moments": [optimizer["state"][k]["exp_avg"].clone() for k in optimizer["state"]],
        "lr": r.optimizer.param_groups[0]["lr"],
        "scale": r.accelerator.scaler.get_scale(),
        "random": torch.rand(3).tolist(),
    }


def _through(rank: int, folder: str, topology: str) -> dict[str, Any]:
    """8 steps make an epoch of 4 workers: a save at its end, and 11 steps more."""
    r, counter = _made(topology)
    steps = len(r.loader)
    r.train(2 * steps)
    counter.value = 10 + rank
    r.accelerator.save_state(folder)
    r.train(steps + 3)
    return _end(r)


def _again(rank: int, folder: str, topology: str) -> dict[str, Any]:
    r, counter = _made(topology, seed=50)
    torch.manual_seed(999)
    r.train(1)  # something is on the wire when the checkpoint is loaded
    steps = len(r.loader)
    r.accelerator.load_state(folder)
    loaded = r.state()
    r.train(steps + 3)
    return {**_end(r), "counter": counter.value, "loaded": loaded}


@pytest.mark.parametrize("topology", ["aer", "complete", "allreduce"])
def test_a_resumed_run_is_bitwise_the_one_that_was_never_stopped(tmp_path: Path, topology: str) -> None:
    """Replicas, moments, scaler, scheduler, random numbers, and the order of the rows (C2, C9, C12)."""
    folder = str(tmp_path / "checkpoint")
    through = run(4, _through, folder, topology)
    again = run(4, _again, folder, topology)
    for rank, (a, b) in enumerate(zip(through, again, strict=True)):
        assert same(a["state"], b["state"]), f"worker {rank}"
        assert all(torch.equal(m, n) for m, n in zip(a["moments"], b["moments"], strict=True))
        assert (a["lr"], a["scale"], a["random"]) == (b["lr"], b["scale"], b["random"])
        assert b["counter"] == 10 + rank
    replicas = [r["loaded"] for r in again]
    assert same(replicas[0], replicas[1]) == (topology == "allreduce")
    assert sorted(os.listdir(tmp_path)) == ["checkpoint"]  # nothing is left aside
    net = model()
    load_checkpoint_in_model(net, folder)
    if topology != "allreduce":
        for name, value in mean(replicas).items():
            torch.testing.assert_close(net.state_dict()[name], value)


def _saved(rank: int, folder: str) -> dict[str, Any]:
    r, _ = _made("aer")
    losses = r.train(40)
    r.accelerator.save_state(folder)
    return {"state": r.state(), "loss": sum(losses[-8:]) / 8, "steps": gossip(r.optimizer).step}


def _elsewhere(rank: int, folder: str) -> dict[str, Any]:
    r, _ = _made("aer")
    r.train(1)
    r.accelerator.load_state(folder)
    state, moments = r.state(), len(r.optimizer.state)
    steps = gossip(r.optimizer).step
    losses = r.train(8)
    return {
        "state": state,
        "moments": moments,
        "loss": sum(losses) / 8,
        "steps": steps,
        "distance": r.plugin.distance(),
    }


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (2, 1)])
def test_another_number_of_workers_starts_from_the_consensus(tmp_path: Path, before: int, after: int) -> None:
    """C6."""
    folder = str(tmp_path / "checkpoint")
    old = run(before, _saved, folder)
    new = run(after, _elsewhere, folder)
    expected = mean([r["state"] for r in old])
    for r in new:
        assert r["moments"] == 0 and r["steps"] == old[0]["steps"] == 40
        assert r["loss"] < 2 * old[0]["loss"] + 0.1
        for name, value in expected.items():
            torch.testing.assert_close(r["state"][name], value)


def _refused(rank: int, folder: str, settings: dict[str, Any]) -> tuple[str, bool, int]:
    topology = settings.pop("topology", "aer")
    r, _ = _made(topology, **settings) if "other" not in settings else (Run("aer"), None)
    before, steps = r.state(), 2
    try:
        r.accelerator.load_state(folder)
    except CheckpointError as error:
        unchanged = same(before, r.state())
        r.train(steps)  # still together
        return str(error), unchanged, gossip(r.optimizer).step
    return "", False, 0


def _damage(folder: Path, how: str) -> str:
    """Returns what the error must say."""
    worker = folder / "decentral_worker_1.pt"
    if how == "truncated":
        worker.write_bytes(worker.read_bytes()[:100])
        return "decentral_worker_1.pt has 100 bytes"
    if how == "missing":
        worker.unlink()
        return "decentral_worker_1.pt is missing"
    if how == "consensus":
        (folder / "model.safetensors").write_bytes(b"")
        return "model.safetensors has 0 bytes"
    if how == "manifest":
        (folder / "decentral.json").write_text('{"workers"')
        return "no decentral.json"
    if how == "nothing":
        shutil.rmtree(folder)
        return "no decentral.json"
    content = bytearray(worker.read_bytes())
    if how == "one bit":
        content[len(content) // 2] ^= 1
        worker.write_bytes(content)
        return "decentral_worker_1.pt is damaged"
    if how == "one bit of the consensus":
        weights = folder / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        return "model.safetensors is damaged"
    content[:64] = bytes(64)  # the right length, and rubbish
    worker.write_bytes(content)
    return "worker 1"


DAMAGES = ["truncated", "missing", "consensus", "manifest", "nothing", "rubbish"]
DAMAGES += ["one bit", "one bit of the consensus"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_is_refused_on_every_worker(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "checkpoint"
    run(2, _saved, str(folder))
    expected = _damage(folder, how)
    before = sorted((p.name, p.stat().st_size) for p in folder.rglob("*"))
    for said, unchanged, steps in run(2, _refused, str(folder), {}):
        assert expected in said and "nothing was loaded" in said and unchanged and steps == 2
    assert before == sorted((p.name, p.stat().st_size) for p in folder.rglob("*"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"topology": "complete"}, "the topology was 'aer'"), ({"other": True}, "AccumAdamW")],
)
def test_the_checkpoint_of_another_run_is_refused(
    tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    folder = str(tmp_path / "checkpoint")
    run(2, _saved, folder)
    for said, unchanged, steps in run(2, _refused, folder, settings):
        assert expected in said and "another run" in said and unchanged and steps == 2


def _full(rank: int, folder: str) -> dict[str, Any]:
    r, _ = _made("ring")
    r.train(3)
    r.accelerator.save_state(folder)
    first = r.state()
    r.train(3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # its disk takes 2,000 bytes a file
    said = ""
    try:
        r.accelerator.save_state(folder)
    except CheckpointError as error:
        said = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    r.plugin.gather(None)  # worker 0 has cleaned up by now
    left = sorted(os.listdir(Path(folder).parent))
    r.train(1)
    r.accelerator.load_state(folder)
    survived = same(first, r.state())
    r.train(1)
    r.accelerator.save_state(folder)
    return {"said": said, "left": left, "survived": survived}


def test_a_full_disk_costs_only_the_new_checkpoint(tmp_path: Path) -> None:
    for r in run(3, _full, str(tmp_path / "checkpoint")):
        assert "worker 1" in r["said"] and "worker 0" not in r["said"] and "was not written" in r["said"]
        assert r["survived"] and r["left"] == ["checkpoint"]


def _numbered(rank: int, folder: str) -> list[str]:
    project = ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True, total_limit=2)
    r = Run("ring", project_config=project)
    for _ in range(4):
        r.train(1)
        r.accelerator.save_state()
    state = r.state()
    r.train(1)
    r.accelerator.load_state()
    assert same(state, r.state())
    return sorted(os.listdir(Path(folder) / "checkpoints"))


def test_numbered_checkpoints_and_their_limit(tmp_path: Path) -> None:
    assert run(2, _numbered, str(tmp_path)) == [["checkpoint_2", "checkpoint_3"]] * 2


def _rows(loader: Any) -> list[float]:
    return [float(x.sum()) for x, _ in loader]


def test_rows_go_on_in_the_middle_of_a_later_epoch(tmp_path: Path) -> None:
    """With the seedable sampler the order of an epoch follows from its number (C2)."""

    def made() -> Run:
        return Run("ring", dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=3))

    r = made()
    first = _rows(r.loader)
    rows = []
    for k, (x, _) in enumerate(r.loader):
        if k == 3:
            r.accelerator.save_state(str(tmp_path / "checkpoint"))
        rows.append(float(x.sum()))
    assert rows != first
    r = made()
    r.accelerator.load_state(str(tmp_path / "checkpoint"))
    assert _rows(r.accelerator.skip_first_batches(r.loader, 3)) == rows[3:]


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("mine")
    r = Run("ring")
    with pytest.raises(CheckpointError, match="is a file"):
        r.accelerator.save_state(str(tmp_path / "checkpoint"))
    with pytest.raises(DecentralizedError, match="folder was named"):
        r.accelerator.save_state()
    assert (tmp_path / "checkpoint").read_text() == "mine"


def test_hooks_and_files_of_the_users(tmp_path: Path) -> None:
    r = Run("ring")
    r.train(1)
    called = []

    def write(models: list[Any], weights: list[Any], folder: str) -> None:
        (Path(folder) / "mine.txt").write_text(str(len(weights)))

    r.accelerator.register_save_state_pre_hook(write)
    r.accelerator.register_load_state_pre_hook(
        lambda models, folder: called.append((Path(folder) / "mine.txt").read_text())
    )
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "notes.txt").write_text("keep me")
    for _ in range(2):
        r.accelerator.save_state(str(folder))
    assert (folder / "notes.txt").read_text() == "keep me" and (folder / "mine.txt").exists()
    assert "mine.txt" in read_manifest(folder)["files"] and "notes.txt" not in read_manifest(folder)["files"]
    r.accelerator.load_state(str(folder))
    assert called == ["1"]


@pytest.mark.parametrize("killed_after", ["the old one is away", "the new one is in place"])
def test_a_kill_in_the_middle_of_the_rename(tmp_path: Path, killed_after: str) -> None:
    r = Run("ring")
    r.train(2)
    folder, old = tmp_path / "checkpoint", tmp_path / ".checkpoint.old"
    r.accelerator.save_state(str(folder))
    state = r.state()
    if killed_after == "the old one is away":
        folder.rename(old)
    else:
        shutil.copytree(folder, old)
        (old / "notes.txt").write_text("keep me")
    r.train(1)
    r.accelerator.load_state(str(folder))
    assert same(state, r.state()) and not old.exists()
    assert killed_after == "the old one is away" or (folder / "notes.txt").exists()


def _two_disks(rank: int, folder: str) -> list[str]:
    """Two hosts that do not share a disk: each keeps what its own workers wrote."""
    import socket

    host = f"host{rank // 2}"
    socket.gethostname = lambda: host  # type: ignore[assignment]
    mine = Path(folder) / host / "checkpoint"
    r = Run("ring")
    for _ in range(3):
        r.train(1)
        r.accelerator.save_state(str(mine))
    state = r.state()
    r.train(1)
    r.accelerator.load_state(str(mine))
    assert same(state, r.state())
    return sorted(os.listdir(mine))


def test_hosts_that_do_not_share_a_disk(tmp_path: Path) -> None:
    """C1: two nodes, each with its own folder; the tests above have the shared one."""
    listed = run(4, _two_disks, str(tmp_path))
    for rank, names in enumerate(listed):
        own = [f"decentral_worker_{w}.pt" for w in (rank // 2 * 2, rank // 2 * 2 + 1)]
        assert names == sorted(["decentral.json", "model.safetensors", *own])


def test_the_manifest_says_what_the_folder_holds(tmp_path: Path) -> None:
    r = Run("aer")
    r.train(1)
    saved = r.accelerator.save_state(str(tmp_path / "a" / "checkpoint"))
    manifest = json.loads((saved / "decentral.json").read_text())
    assert manifest["workers"] == 1 and manifest["topology"] == "aer"
    assert manifest["files"].keys() == {"decentral_worker_0.pt", "model.safetensors"}
    assert manifest["fingerprint"]["the optimizers"] == "AdamW"
    Aside(saved, 0, lambda value: [value]).recover()
    assert saved.is_dir()
