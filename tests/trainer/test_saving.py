"""Which checkpoints go when there are too many."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers.trainer_utils import rotate_checkpoints

from hf_decentral.trainer.saving import rotate


def _fill(folder: Path, finite: list[bool]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for step, fine in enumerate(finite, start=8):  # 10 comes after 9
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / "decentral.json").write_text(json.dumps({"finite": fine}))
    return folder


def _left(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("checkpoint-")) for path in folder.iterdir())


@pytest.mark.parametrize("limit", [None, 0, 1, 2, 3, 9])
@pytest.mark.parametrize("best", [None, 8, 9, 11])
def test_finite_ones_go_as_in_the_trainer(tmp_path: Path, limit: int | None, best: int | None) -> None:
    left = []
    for delete in (rotate, rotate_checkpoints):
        folder = _fill(tmp_path / "out", [True] * 4)
        delete(str(folder), limit, None if best is None else str(folder / f"checkpoint-{best}"))
        left.append(_left(folder))
    assert left[0] == left[1]


@pytest.mark.parametrize(
    ("finite", "limit", "best", "left"),
    [
        ([True, True, False, False], 1, None, [9, 11]),
        ([True, True, False, False], 1, 8, [8, 9, 11]),
        ([True, True, False, False], 3, None, [9, 10, 11]),
        ([False, False, False, False], 1, None, [11]),
        ([True, False, False, True], 1, None, [11]),
    ],
)
def test_the_last_finite_one_never_goes(
    tmp_path: Path, finite: list[bool], limit: int, best: int | None, left: list[int]
) -> None:
    folder = _fill(tmp_path, finite)
    rotate(str(folder), limit, None if best is None else str(folder / f"checkpoint-{best}"))
    assert _left(folder) == left


def test_a_checkpoint_that_is_not_whole_is_not_taken_for_the_last_finite_one(tmp_path: Path) -> None:
    folder = _fill(tmp_path, [True, True, False])
    (folder / "checkpoint-9" / "decentral.json").unlink()
    rotate(str(folder), 1, None)
    assert _left(folder) == [8, 10]
