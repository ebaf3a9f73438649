"""Errors about the output folder of a training script, and what an earlier run left there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_decentral.errors.base import CheckpointError, sentence


def checkpoint_exists(folder: Path) -> CheckpointError:
    """A new run would write over the checkpoints of an earlier one."""
    return CheckpointError(
        sentence(
            f"{str(folder)!r} holds checkpoints of an earlier run",
            "a new run begins in a folder without checkpoints",
            "go on from them with --resume, or give another --output_dir, or delete them",
        )
    )


def nothing_to_resume(folder: Path) -> CheckpointError:
    """``--resume`` in a folder without one complete checkpoint."""
    broken = sorted(path.name for path in folder.glob("step_*"))
    found = f" (only incomplete ones: {', '.join(broken)})" if broken else ""
    return CheckpointError(
        sentence(
            f"{str(folder)!r} holds no complete checkpoint{found}",
            "--resume goes on from a checkpoint that was saved completely",
            "start without --resume, or give that run's --output_dir; --save_every sets when one is saved",
        )
    )


def other_run(folder: Path, differing: Mapping[str, tuple[object, object]]) -> CheckpointError:
    """A checkpoint whose model or data are not those of this run; ``differing``: name to (saved, given)."""
    told = ", ".join(f"{name} was {saved!r} and is {given!r}" for name, (saved, given) in differing.items())
    return CheckpointError(
        sentence(
            f"{str(folder)!r} is the checkpoint of another run: {told}",
            "a run goes on with the model and the data that it began with",
            "give the settings it was started with, or another --output_dir",
        )
    )


def unreadable_state(path: Path, cause: str) -> CheckpointError:
    """A small file of an earlier run that is missing or damaged."""
    return CheckpointError(
        sentence(
            f"{str(path)!r} cannot be read ({cause})",
            "expected the file as it was saved",
            "restore the file, or begin a new run in another --output_dir",
        )
    )


def read_state(path: Path) -> Any:
    """Read a small JSON file of an earlier run.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable_state(path, str(error)) from error
