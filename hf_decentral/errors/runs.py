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


def nothing_in_common(folder: Path) -> CheckpointError:
    """Hosts that share no disk, and have no checkpoint of one save."""
    return CheckpointError(
        sentence(
            f"no checkpoint in {str(folder)!r} is one that all workers have",
            "hosts that share no disk go on from a save that each of them kept",
            "see that every worker is on the host where it was, or copy a checkpoint to all hosts",
        )
    )


def no_folder(folder: Path, problems: Mapping[int, str]) -> CheckpointError:
    """At least one worker cannot use the output folder; ``problems``: worker to what it met."""
    told = "; ".join(f"worker {worker}: {text}" for worker, text in sorted(problems.items()))
    return CheckpointError(
        sentence(
            f"the run cannot begin in {str(folder)!r} ({told})",
            "every host has a folder that it can write to",
            "give another --output_dir, or see that the folder can be made",
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
