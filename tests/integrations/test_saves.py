"""Which save a run goes on from, and under which number it writes the next."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from accelerate.utils import ProjectConfiguration

from hf_decentral.errors import CheckpointError
from hf_decentral.integrations.folder import Aside
from tests.integrations.loops import Run, same
from tests.processes import run

pytestmark = pytest.mark.processes


def _numbered(folder: Path) -> Run:
    return Run("ring", project_config=ProjectConfiguration(str(folder), automatic_checkpoint_naming=True))


def test_a_resumed_run_goes_on_with_the_numbers(tmp_path: Path) -> None:
    r = _numbered(tmp_path)
    for _ in range(2):
        r.train(1)
        r.accelerator.save_state()
    r = _numbered(tmp_path)
    r.accelerator.load_state()
    r.train(1)
    assert r.accelerator.save_state().name == "checkpoint_2"
    state = r.state()
    r = _numbered(tmp_path)
    r.accelerator.load_state()
    assert same(state, r.state())
    r.accelerator.load_state(str(tmp_path / "checkpoints" / "checkpoint_0"))
    assert r.accelerator.save_state().name == "checkpoint_3"  # the last one is the newest
    assert _numbered(tmp_path).accelerator.save_state().name == "checkpoint_4"  # a run that began anew


def _stopped_apart(rank: int, folder: str) -> dict[str, Any]:
    """Two hosts without a common disk; the second one has lost what was saved last."""
    import socket

    host = f"host{rank // 2}"
    socket.gethostname = lambda: host  # type: ignore[assignment]
    mine = Path(folder) / host
    r = _numbered(mine)
    states = []
    for _ in range(3):
        r.train(1)
        states.append(r.state())
        r.accelerator.save_state()
    r.plugin.gather(None)
    if rank == 2:
        shutil.rmtree(mine / "checkpoints" / "checkpoint_2")
    r.plugin.gather(None)
    said = ""
    before = r.state()
    try:
        r.accelerator.load_state(str(mine / "checkpoints" / f"checkpoint_{1 - rank // 2}"))
    except CheckpointError as error:
        said = str(error)
    unchanged = same(before, r.state())
    r.accelerator.load_state()
    second = same(states[1], r.state())
    return {"said": said, "unchanged": unchanged, "second": second, "next": r.accelerator.save_state().name}


def test_hosts_that_stopped_at_different_saves(tmp_path: Path) -> None:
    for r in run(4, _stopped_apart, str(tmp_path)):
        assert "workers 0, 1 found" in r["said"] and "workers 2, 3 found" in r["said"] and r["unchanged"]
        assert r["second"] and r["next"] == "checkpoint_3"


def _unreadable(rank: int, folder: str) -> str:
    r = Run("ring")
    r.train(1)
    r.accelerator.save_state(folder)
    shutil.copytree(folder, Path(folder).parent / ".checkpoint.old") if rank == 0 else None
    if rank == 0:
        Aside._keep_foreign = _fails  # type: ignore[method-assign]
    try:
        r.accelerator.load_state(folder)
    except CheckpointError as error:
        r.train(1)
        return str(error)
    return ""


def _fails(self: Aside) -> None:
    raise PermissionError("not allowed")


def test_a_recovery_that_fails_is_told_on_every_worker(tmp_path: Path) -> None:
    for said in run(2, _unreadable, str(tmp_path / "checkpoint")):
        assert "worker 0: PermissionError: not allowed" in said


@pytest.mark.parametrize("lost", ["rename", "rmtree"])
def test_a_recovery_that_another_host_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    old, target = tmp_path / ".checkpoint.old", tmp_path / "checkpoint"
    old.mkdir()
    (old / "decentral.json").write_text("{}")
    if lost == "rmtree":
        shutil.copytree(old, target)
    rename, rmtree = Path.rename, shutil.rmtree

    def renamed(self: Path, there: Path) -> Path:
        rename(self, there)
        return rename(self, there)

    def removed(path: Path) -> None:
        rmtree(path)
        rmtree(path)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(shutil, "rmtree", removed)
    Aside(target, 0, lambda value: [value]).recover()
    assert os.listdir(tmp_path) == ["checkpoint"]
