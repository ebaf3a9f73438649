"""Errors about local optimizers: their settings, and parameters that they cannot step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hf_decentral.errors.base import ParameterError, SettingsError, sentence


def sparse_gradient(optimizer: str, shape: Sequence[int]) -> ParameterError:
    """A sparse gradient, for which the moments have no rule."""
    return ParameterError(
        sentence(
            f"a parameter of shape {list(shape)} has a sparse gradient",
            f"{optimizer} takes dense gradients",
            "make the layer with sparse=False",
        )
    )


def complex_parameter(optimizer: str, shape: Sequence[int]) -> ParameterError:
    """A complex parameter, whose square is no variance."""
    return ParameterError(
        sentence(
            f"a parameter of shape {list(shape)} is complex",
            f"{optimizer} takes real parameters",
            "keep it as a real parameter with a last axis of two (torch.view_as_real)",
        )
    )


def no_window(optimizer: str, setting: str, given: object, with_window: Iterable[str]) -> SettingsError:
    """A window length or horizon for an optimizer that has no window."""
    return SettingsError(
        sentence(
            f"{setting} is {given!r} for {optimizer}",
            f"{optimizer} commits its moments at every step and has no window",
            f"leave {setting} out, or choose {' or '.join(sorted(with_window))}",
        )
    )


def unknown_setting(optimizer: str, given: str, known: Iterable[str]) -> SettingsError:
    """A setting that this optimizer does not have."""
    return SettingsError(
        sentence(
            f"{optimizer} has no setting {given!r}",
            f"it takes {', '.join(sorted(known))}",
            "leave it out or correct its name",
        )
    )


def muon_needs_matrices(shape: Sequence[int]) -> ParameterError:
    """Muon was given something else than matrices, without the model that says what it is."""
    return ParameterError(
        sentence(
            f"muon was given a parameter of shape {list(shape)}",
            "Muon steps matrices (two axes) only",
            "give the model instead of its parameters: its hidden matrices then go to Muon and its "
            "embeddings, head, norms and biases to AdamW",
        )
    )


def nothing_to_train(model: str) -> ParameterError:
    """A model whose parameters are all frozen."""
    return ParameterError(
        sentence(
            f"{model} has no parameter that requires a gradient",
            "expected at least one",
            "unfreeze a part of the model before the optimizer is made",
        )
    )


def refused(optimizer: str, given: str, cause: str) -> SettingsError:
    """torch refused a value."""
    return SettingsError(
        sentence(f"{optimizer} was given {given}", f"torch refuses it: {cause}", "correct that setting")
    )


def no_embedding_scale(name: str) -> SettingsError:
    """A rate of its own for embeddings, where nobody can tell which parameters those are."""
    return SettingsError(
        sentence(
            f"embedding_scale was given for {name!r}",
            "it needs a whole model, and an optimizer that does not sort its parameters itself as muon does",
            "leave it out, or give parameter groups with an lr of their own",
        )
    )
