"""Errors about simulated runs: their problems, their shards, their size and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hf_decentral.errors.base import (
    CheckpointError,
    DataError,
    DecentralizedError,
    ParameterError,
    SettingsError,
    sentence,
)

_SHOWN = 8  # workers of a thousand that a sentence names


def unknown_problem_setting(problem: str, given: str, known: Sequence[str]) -> SettingsError:
    """A setting that this problem does not have."""
    return SettingsError(
        sentence(
            f"problem {problem!r} has no setting {given!r}",
            f"it takes {', '.join(known)}",
            "leave it out or correct its name",
        )
    )


def unequal_lengths(part: str, inputs: int, targets: int) -> DataError:
    """Data whose inputs and targets do not belong together."""
    return DataError(
        sentence(
            f"the {part} data of the problem have {inputs} inputs and {targets} targets",
            "expected one target for each input, and at least one of both",
            "give tensors whose first axes are equally long",
        )
    )


def too_few_samples(problem: str, samples: int, workers: int) -> SettingsError:
    """More workers than samples."""
    return SettingsError(
        sentence(
            f"problem {problem!r} has {samples} training samples for {workers} workers",
            "every worker needs at least one of its own",
            f"simulate {samples} workers at most, or give more data",
        )
    )


def changing_buffer(model: str, buffer: str) -> ParameterError:
    """A module that writes to a buffer in its forward pass, as BatchNorm does in training."""
    return ParameterError(
        sentence(
            f"the forward pass of {model} changes its buffer {buffer!r}",
            "the gradients of all workers are computed at once, for which buffers must stay as they are",
            "use GroupNorm or LayerNorm instead of BatchNorm, or put that layer in eval() for good",
        )
    )


def cannot_vectorize(model: str, cause: str) -> ParameterError:
    """torch.func could not compute the gradients of several workers at once."""
    return ParameterError(
        sentence(
            f"the gradients of {model} cannot be computed for several workers at once ({cause})",
            "expected a module and a loss that torch.func.vmap can run: no .item(), no branches on values, "
            "nothing written in place, and a loss without axes",
            "write those parts with torch.where and the like",
        )
    )


def nothing_trains(model: str) -> ParameterError:
    """A model without a trainable parameter."""
    return ParameterError(
        sentence(
            f"{model} has no parameter that requires a gradient",
            "expected at least one, which the workers train",
            "unfreeze a part of the model",
        )
    )


def not_finite(workers: Sequence[int], of: int, step: int) -> DecentralizedError:
    """The loss or the gradient of some workers is no number.

    Args:
        workers: those workers.
        of: number of all workers.
        step: number of the step, from 0.
    """
    named = ", ".join(map(str, workers[:_SHOWN])) + (" and more" if len(workers) > _SHOWN else "")
    many = len(workers) > 1
    advice = (
        "lower lr, or use a topology that bears a larger step"
        if len(workers) == of
        else f"look at the data of {'these workers' if many else 'this worker'} or lower lr; nan='skip' "
        "leaves such gradients out and goes on"
    )
    return DecentralizedError(
        sentence(
            f"{'workers' if many else 'worker'} {named} of {of} had a loss or gradient that is not finite in "
            f"step {step}",
            "expected finite numbers from every worker",
            advice,
        )
    )


def no_digits(path: Path, variable: str) -> DataError:
    """The file of handwritten digits is not there."""
    return DataError(
        sentence(
            f"there is no file {str(path)!r} with the digits of MNIST",
            "expected a .npz file with arrays x_train, y_train, x_test and y_test, images of 28 x 28 bytes",
            f"write one with numpy.savez_compressed and name it with data=... or the variable {variable}",
        )
    )


def wrong_digits(path: Path, cause: str) -> DataError:
    """A file that holds no digits."""
    return DataError(
        sentence(
            f"{str(path)!r} holds no digits of MNIST ({cause})",
            "expected a .npz file with arrays x_train, y_train, x_test and y_test, images of 28 x 28 bytes",
            "write it with numpy.savez_compressed, without pickled objects",
        )
    )


def too_short(name: str, characters: int, needed: int) -> DataError:
    """A text without room for contexts to train on and others to hold out."""
    return DataError(
        sentence(
            f"text {name!r} has {characters} characters",
            f"expected {needed} or more",
            "give a longer text, or lower length",
        )
    )


def named_topology_needed(given: str, rounds: str) -> SettingsError:
    """A topology as an object, for an algorithm that puts a name into its own rounds."""
    return SettingsError(
        sentence(
            f"topology {given!r} was given as an object to an algorithm whose rounds are {rounds!r}",
            "expected the name of a topology",
            "give a name of `hf-decentral topology list`, or an Algorithm with topology='{topology}'",
        )
    )


def beyond_memory(
    workers: int, parameters: int, needed_gb: float, free_gb: float, fitting: int, parameters_fitting: int
) -> SettingsError:
    """More workers times parameters than the memory of this machine holds.

    Args:
        workers: how many were asked for.
        parameters: of each.
        needed_gb: what they take, in gigabytes.
        free_gb: what is free.
        fitting: workers of so many parameters that would fit.
        parameters_fitting: parameters of so many workers that would fit.
    """
    return SettingsError(
        sentence(
            f"{workers} workers x {parameters:,} parameters take about {needed_gb:.3g} GB with gradients, "
            "optimizer state and buffers",
            f"expected no more than the {free_gb:.3g} GB of memory that are free",
            f"{fitting} workers of that size would fit, or {workers} workers of {parameters_fitting:,} "
            "parameters"
            if fitting
            else f"not one worker of that size fits; {workers} workers of {parameters_fitting:,} parameters "
            "would",
        )
    )


def not_this_run(path: Path, what: str, found: object, expected: object) -> CheckpointError:
    """A checkpoint of another run."""
    return CheckpointError(
        sentence(
            f"checkpoint {str(path)!r} belongs to a run with {what} {found!r}",
            f"this run has {what} {expected!r}",
            "name another file with save=..., or delete that one",
        )
    )


def not_a_run(path: Path, cause: str) -> CheckpointError:
    """A file that is no checkpoint of a simulated run, or a damaged one."""
    return CheckpointError(
        sentence(
            f"{str(path)!r} cannot be read as a checkpoint of a simulated run ({cause})",
            "expected a file that simulate(save=...) wrote, or none",
            "name another file with save=..., or delete that one",
        )
    )


def cannot_save(path: Path, cause: str) -> CheckpointError:
    """The checkpoint of a simulated run could not be written."""
    return CheckpointError(
        sentence(
            f"checkpoint {str(path)!r} cannot be written ({cause})",
            "expected a file in a folder with room for all parameters and the optimizer's state",
            "name another file with save=..., or leave save out",
        )
    )


def cannot_join(averaging: str) -> SettingsError:
    """Workers that come later, and a method whose memory is that of the parameters which a worker had."""
    return SettingsError(
        sentence(
            f"joins were given with averaging {averaging!r}",
            "expected a method that takes nothing else for a local step: this one would take the way to the "
            "parameters of the others for one",
            "leave joins out, or use an algorithm such as 'dpsgd', 'dadam' or 'choco'",
        )
    )
