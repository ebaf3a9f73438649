"""What ``--optim`` may be: every name of transformers, and ours."""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

from hf_decentral.errors import unknown_name
from hf_decentral.errors.trainer import optim_args
from hf_decentral.integrations import optimizers

STOCK = tuple(name.value for name in OptimizerNames)


def checked(name: Any) -> str:
    """The name of an optimizer, as it is in its table.

    Raises:
        SettingsError: neither transformers nor this package has it; the nearest is offered.
    """
    typed = str(getattr(name, "value", name)).lower()
    if typed not in STOCK and typed not in optimizers.names():
        raise unknown_name("optimizer --optim", name, {*STOCK, *optimizers.names()})
    return typed


def is_ours(name: Any) -> bool:
    """True where transformers has no optimizer of this name; ``sgd`` is theirs, ``dsgd`` ours."""
    return str(getattr(name, "value", name)) not in STOCK


def class_and_settings(args: TrainingArguments, window: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What ``Trainer.get_optimizer_cls_and_kwargs`` gives back, for a name of ours.

    Args:
        args: the training arguments; ``optim_args`` ("momentum=0.9,nesterov=True") comes last and wins.
        window: ``accum`` and ``horizon``, for the optimizers that have them.

    Raises:
        SettingsError: a setting in ``optim_args`` that this optimizer does not have.
    """
    name = checked(args.optim)
    row, known = optimizers.row(name), optimizers.settings_of(name)
    rates = {"lr": args.learning_rate, "weight_decay": args.weight_decay}
    adam = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon, **window}
    given = {key: value for key, value in (rates if row.from_model else rates | adam).items() if key in known}
    given |= parsed(args.optim_args)
    optimizers.check_settings(name, given)
    if row.from_model:  # the Trainer calls such a thing with the model
        return partial(partial, optimizers.build, name), given
    return row.kind, given


def parsed(text: str | None) -> dict[str, Any]:
    """``"momentum=0.9,nesterov=True"`` as values.

    Raises:
        SettingsError: something without ``=``.
    """
    found: dict[str, Any] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise optim_args(str(text), part)
        try:
            found[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            found[key.strip()] = value.strip()
    return found
