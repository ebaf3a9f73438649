"""The table of local optimizers: names become torch optimizers here, and nowhere else.

A new optimizer is one row. None of them knows of neighbours; ``decentralize`` makes any of them gossip.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, ParamsT

from hf_decentral.errors import DecentralizedError, out_of_range, unknown_name
from hf_decentral.errors.optimizers import (
    no_embedding_scale,
    no_window,
    nothing_to_train,
    refused,
    unknown_setting,
)
from hf_decentral.optim.accum_adam import AccumAdam, AccumAdamW
from hf_decentral.optim.muon_adamw import MuonAdamW, check_matrices

WINDOW = ("accum", "horizon")


class Row(NamedTuple):
    """One optimizer.

    Attributes:
        kind: the class, called with parameters or groups and with settings.
        aliases: other names of it; ``d…`` is what the literature calls it once it gossips.
        from_model: makes it from a whole model, where that takes more than decay groups.
    """

    kind: Callable[..., Optimizer]
    aliases: tuple[str, ...] = ()
    from_model: Callable[..., Optimizer] | None = None


def _muon_from_model(
    model: nn.Module, lr: float = 1e-3, weight_decay: float = 0.1, **settings: Any
) -> Optimizer:
    """Hidden matrices to Muon, the rest to AdamW; one learning rate serves both (arXiv 2502.16982)."""
    outside = _embeddings_and_heads(model)
    groups = []
    for group in decay_groups(model, weight_decay):
        hidden = [p for p in group["params"] if p.ndim == 2 and id(p) not in outside]
        others = [p for p in group["params"] if p.ndim != 2 or id(p) in outside]
        groups += [
            {**group, "params": found, "rule": rule}
            for rule, found in (("muon", hidden), ("adamw", others))
            if found
        ]
    settings.setdefault("adjust_lr_fn", "match_rms_adamw")
    return MuonAdamW(groups, lr, weight_decay, muon=settings)


def _muon(params: ParamsT, **settings: Any) -> Optimizer:
    given = list(params)
    for each in given:
        check_matrices(list(each["params"]) if isinstance(each, dict) else [_tensor(each)])
    return torch.optim.Muon(given, **settings)  # type: ignore[arg-type]


OPTIMIZERS: dict[str, Row] = {
    "accumadam": Row(AccumAdam),
    "accumadamw": Row(AccumAdamW),
    "adam": Row(torch.optim.Adam, ("dadam",)),
    "adamw": Row(torch.optim.AdamW, ("dadamw",)),
    "sgd": Row(torch.optim.SGD, ("dsgd",)),
    "muon": Row(_muon, ("dmuon",), _muon_from_model),
}
_SIGNATURES: dict[str, Callable[..., Optimizer]] = {"muon": torch.optim.Muon}


def names() -> list[str]:
    """Every name that ``build`` knows, aliases included."""
    return [name for key, row in OPTIMIZERS.items() for name in (key, *row.aliases)]


def settings_of(name: str) -> frozenset[str]:
    """The settings that an optimizer takes, for example ``{"lr", "betas", …}``.

    Raises:
        SettingsError: no optimizer has this name.
    """
    key = _key(name)
    kind = _SIGNATURES.get(key, OPTIMIZERS[key].kind)
    return frozenset(inspect.signature(kind).parameters) - {"params"}


def row(name: str) -> Row:
    """The row of an optimizer, by its name or another one of it.

    Raises:
        SettingsError: no optimizer has this name.
    """
    return OPTIMIZERS[_key(name)]


def check_settings(name: str, given: dict[str, Any]) -> None:
    """See that an optimizer has these settings.

    Raises:
        SettingsError: it has not, or there is no such optimizer.
    """
    _checked(_key(name), given)


def build(
    name: str, params_or_model: nn.Module | ParamsT, *, embedding_scale: float | None = None, **settings: Any
) -> Optimizer:
    """Make a torch optimizer by name.

    Args:
        name: one of ``names()``; case does not matter.
        params_or_model: a model (its trainable parameters are put into decay groups), or whatever a torch
            optimizer takes.
        embedding_scale: learning rate of the embeddings (and of a head tied to them) as a multiple of ``lr``;
            of a model only. A token that one of ``n`` workers has seen moves the mean over them by an
            ``n``-th of Adam's step, where All-Reduce makes the whole one; the number of workers makes up for
            that.
        settings: settings of that optimizer; those that are None are left at their defaults.

    Raises:
        SettingsError: an unknown name, a setting that this optimizer does not have, a value out of its range.
        ParameterError: nothing to train, or parameters that this optimizer cannot step.
    """
    key = _key(name)
    row = OPTIMIZERS[key]
    given = _checked(key, {setting: value for setting, value in settings.items() if value is not None})
    if embedding_scale is not None and not embedding_scale > 0:
        raise out_of_range(
            "embedding_scale", embedding_scale, "a number above 0", "1 is the rate of the rest"
        )
    scaled = embedding_scale not in (None, 1)
    if scaled and (row.from_model is not None or not isinstance(params_or_model, nn.Module)):
        raise no_embedding_scale(key)
    try:
        if not isinstance(params_or_model, nn.Module):
            return row.kind(params_or_model, **given)
        if row.from_model is not None:
            return row.from_model(params_or_model, **given)
        decay = given.get("weight_decay", inspect.signature(row.kind).parameters["weight_decay"].default)
        groups = decay_groups(params_or_model, decay)
        made = row.kind(groups, **given)
        if scaled and embedding_scale is not None:
            scale_embeddings(made, params_or_model, embedding_scale)
        return made
    except DecentralizedError:
        raise
    except ValueError as error:  # torch's own refusal of a value
        told = ", ".join(f"{setting}={value!r}" for setting, value in given.items())
        raise refused(key, told, str(error)) from error


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Put the trainable parameters into a group with weight decay and one without.

    Matrices and larger (embeddings among them) decay; vectors and scalars (norms, biases) do not.
    Tied parameters appear once.

    Raises:
        ParameterError: every parameter is frozen.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise nothing_to_train(type(model).__name__)
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def scale_embeddings(optimizer: Optimizer, model: nn.Module, scale: float) -> None:
    """Put the embeddings (and a head tied to them) in groups of their own, with ``scale`` times the rate.

    To be called before the first step and before a scheduler is made.
    """
    chosen = _embeddings_and_heads(model)
    groups = list(optimizer.param_groups)
    optimizer.param_groups.clear()
    for group in groups:
        inside = [p for p in group["params"] if id(p) in chosen]
        outside = [p for p in group["params"] if id(p) not in chosen]
        if outside:
            optimizer.add_param_group({**group, "params": outside})
        if inside:
            optimizer.add_param_group({**group, "params": inside, "lr": group["lr"] * scale})


def _key(name: str) -> str:
    typed = str(name).lower()
    for key, row in OPTIMIZERS.items():
        if typed in (key, *row.aliases):
            return key
    raise unknown_name("optimizer", name, names())


def _checked(key: str, given: dict[str, Any]) -> dict[str, Any]:
    known = settings_of(key)
    for setting, value in given.items():
        if setting in WINDOW and setting not in known:
            with_window = [other for other in OPTIMIZERS if setting in settings_of(other)]
            raise no_window(key, setting, value, with_window)
        if setting not in known:
            raise unknown_setting(key, setting, known)
    return given


def _tensor(each: Any) -> torch.Tensor:
    named = isinstance(each, tuple)  # (name, parameter)
    tensor: torch.Tensor = each[1] if named else each
    return tensor


def _embeddings_and_heads(model: nn.Module) -> set[int]:
    """The parameters that map tokens in and out: Muon's authors leave them to AdamW."""
    modules: Iterable[nn.Module] = (module for module in model.modules() if isinstance(module, nn.Embedding))
    found = {id(parameter) for module in modules for parameter in module.parameters()}
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if isinstance(head, nn.Module):
        found |= {id(parameter) for parameter in head.parameters()}
    return found
