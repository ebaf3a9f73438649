"""The output folder of a script: what a kill, a NaN or another host may leave in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hf_decentral.errors import CheckpointError
from hf_decentral.integrations.run_folder import RunFolder
from tests.integrations.loops import Run
from tests.processes import run


def test_a_torn_last_line_is_dropped_and_nan_becomes_null(tmp_path: Path) -> None:
    folder = RunFolder(Run("ring").plugin, str(tmp_path), {}, resume=False)
    folder.begin_log(0)
    for step in (1, 2, 3):
        folder.log({"step": step, "loss": float("nan")})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    folder.begin_log(2)
    folder.write("summary.json", {"val_loss": float("inf"), "settings": {"lr": 0.1}, "betas": (0.9, 0.98)})
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert found == [{"step": 1, "loss": None}, {"step": 2, "loss": None}]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == {"val_loss": None, "settings": {"lr": 0.1}, "betas": [0.9, 0.98]}
    assert sorted(os.listdir(tmp_path)) == ["metrics.jsonl", "settings.json", "summary.json"]


def _blocked(rank: int, folder: str) -> str:
    mine = Path(folder) / f"host{rank}"
    if rank == 0:
        mine.write_text("a file in the way")
    plugin = Run("ring").plugin
    type(plugin.accelerator).is_local_main_process = property(lambda self: True)  # a host of its own
    try:
        RunFolder(plugin, str(mine), {}, resume=False)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.processes
def test_a_folder_that_one_host_cannot_make_ends_all_workers(tmp_path: Path) -> None:
    for said in run(2, _blocked, str(tmp_path)):
        assert "cannot begin in" in said and "worker 0: FileExistsError" in said and "worker 1" not in said
