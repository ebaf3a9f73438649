"""Errors about a Trainer whose workers average with neighbours."""

from __future__ import annotations

from hf_decentral.errors.base import DataError, LaunchError, MismatchError, SettingsError, sentence


def optim_args(given: str, part: str) -> SettingsError:
    """A part of ``--optim_args`` that is no setting."""
    return SettingsError(
        sentence(
            f"--optim_args is {given!r}",
            f"expected NAME=VALUE, by commas; {part!r} is none",
            "write for example --optim_args momentum=0.9,nesterov=True",
        )
    )


def several_devices(devices: int) -> LaunchError:
    """One process that owns several GPUs would train with torch.nn.DataParallel."""
    return LaunchError(
        sentence(
            f"this process owns {devices} GPUs, which the Trainer joins by torch.nn.DataParallel",
            "one process for each GPU: every worker has a replica of its own",
            "start with `accelerate launch` or `torchrun --nproc-per-node`, or make one GPU visible "
            "(CUDA_VISIBLE_DEVICES=0)",
        )
    )


def batch_size_search() -> SettingsError:
    """``auto_find_batch_size`` lets a single worker begin anew."""
    return SettingsError(
        sentence(
            "auto_find_batch_size=True was given together with a topology",
            "workers that take the same steps; it lets one worker that ran out of memory begin again",
            "choose per_device_train_batch_size by hand, or topology='allreduce'",
        )
    )


def called_alone(what: str, worker: int, others: str) -> MismatchError:
    """A call that all workers must make, made by some."""
    return MismatchError(
        sentence(
            f"worker {worker} called {what}, and not every worker did ({others.rstrip('.')})",
            "a call on every worker, at the same step: the mean of all replicas needs each of them",
            f"look at the log of the others for an error of their own; where there is none, call {what} "
            "outside of `if trainer.is_world_process_zero():`; only worker 0 writes anyway",
        )
    )


def no_whole_checkpoint(folder: str) -> SettingsError:
    """``resume_from_checkpoint=True`` without a checkpoint that is complete on every worker."""
    return SettingsError(
        sentence(
            f"resume_from_checkpoint=True, and {folder!r} holds no checkpoint that every worker has complete",
            "a folder checkpoint-N with decentral.json, which is written last",
            "name a checkpoint by its path, or begin anew",
        )
    )


def no_rows(workers: list[int], of: int) -> DataError:
    """A training set without a row."""
    who = f"workers {', '.join(map(str, workers))} of {of}" if of > 1 else "this run"
    return DataError(
        sentence(
            f"train_dataset holds no rows ({who})",
            "at least one row for each worker",
            "look at what was loaded, and whether a filter has dropped everything",
        )
    )


def no_batches(workers: list[int], of: int) -> DataError:
    """Some worker has nothing to train on."""
    return DataError(
        sentence(
            f"of {of} workers, {', '.join(map(str, workers))} found no batch to train on",
            "at least one batch for each worker",
            "give more data, or lower per_device_train_batch_size or the number of workers; "
            "dataloader_drop_last=True drops what does not fill a batch on every worker",
        )
    )


def no_step(workers: list[int], batches: int, needed: int) -> DataError:
    """A stream that ends before the first step of an epoch."""
    return DataError(
        sentence(
            f"the data of workers {', '.join(map(str, workers))} ended after {batches} batches",
            f"one step takes {needed} of each worker (gradient_accumulation_steps)",
            "give each more data, or lower gradient_accumulation_steps or per_device_train_batch_size",
        )
    )
