"""Errors about checkpoints: they are told on every worker, so that nobody goes on alone."""

from __future__ import annotations

from hf_decentral.errors.base import CheckpointError, sentence


class Unfit(Exception):
    """Why one worker cannot load a folder; the CheckpointError that all workers raise tells it."""


def not_saved(folder: str, problems: dict[int, str]) -> CheckpointError:
    """At least one worker could not write its part; the former checkpoint is still there."""
    return CheckpointError(
        sentence(
            f"the checkpoint {folder} was not written ({_told(problems)})",
            "every worker writes its replica; a checkpoint of the same name from before is left as it was",
            "make room on the disk or name another folder, and save again",
        )
    )


def not_loaded(folder: str, problems: dict[int, str]) -> CheckpointError:
    """At least one worker cannot read its part; nothing was loaded anywhere."""
    return CheckpointError(
        sentence(
            f"the checkpoint {folder} cannot be loaded ({_told(problems)})",
            "a complete folder, as this run's save_state() or Trainer writes it; nothing was loaded, on any "
            "worker, and nothing in the folder was changed",
            "name another checkpoint, or copy the missing files from where it was written",
        )
    )


def half_loaded(folder: str, problems: dict[int, str]) -> CheckpointError:
    """Some worker failed while it put the state in place."""
    return CheckpointError(
        sentence(
            f"the checkpoint {folder} was read, but not all of it fits this run ({_told(problems)})",
            "the same model, optimizers, schedulers and registered objects as in the run that saved it",
            "end this run: its state is a mixture now; start it with the code that wrote the checkpoint",
        )
    )


def is_a_file(folder: str) -> str:
    """The target is a file."""
    return f"{folder} is a file, not a folder"


def no_folder() -> CheckpointError:
    """save_state() or load_state() without a folder and without automatic names."""
    return CheckpointError(
        sentence(
            "no folder was named",
            "a folder, or automatic_checkpoint_naming in the project configuration",
            "call save_state(folder) or load_state(folder)",
        )
    )


def not_there(folder: str) -> str:
    """A path to no folder."""
    return f"there is no folder {folder}"


def no_checkpoint(folder: str) -> str:
    """A folder that holds no checkpoint of this package."""
    return f"{folder} holds no decentral.json, which every complete checkpoint has"


def missing_file(name: str) -> str:
    """A file that the manifest lists is not there."""
    return f"{name} is missing"


def truncated_file(name: str, found: int, expected: int) -> str:
    """A file is shorter or longer than when it was written."""
    return f"{name} has {found} bytes, not {expected}"


def altered_file(name: str) -> str:
    """A file of the right length that holds something else."""
    return f"{name} is damaged: its bytes are not those that were written"


def several_saves(folders: dict[str, list[int]]) -> CheckpointError:
    """Workers would go on from different steps; ``folders``: what was found, and by which workers."""
    found = "; ".join(
        f"workers {', '.join(map(str, workers))} found {folder}" for folder, workers in folders.items()
    )
    return CheckpointError(
        sentence(
            f"the workers found checkpoints of different saves ({found})",
            "all workers go on from one save; hosts that share no disk may have stopped at different ones; "
            "nothing was loaded, on any worker",
            "name a checkpoint that every host has",
        )
    )


def other_run(what: str, found: str, expected: str) -> str:
    """The checkpoint is one of another run."""
    return f"it comes from another run: {what} was {found}, here it is {expected}"


def _told(problems: dict[int, str]) -> str:
    return "; ".join(f"worker {worker}: {text}" for worker, text in sorted(problems.items()))
