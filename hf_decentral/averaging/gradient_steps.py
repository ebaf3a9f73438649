"""What methods for plain gradient steps ask of the optimizer that takes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.optim import Optimizer

from hf_decentral.errors import out_of_range
from hf_decentral.errors.corrections import momentum_twice, needs_gradient_steps


def sgd(averaging: str) -> Callable[[Optimizer], None]:
    """A check that raises a SettingsError for everything that is not SGD."""

    def check(optimizer: Optimizer) -> None:
        if not isinstance(optimizer, torch.optim.SGD):
            raise needs_gradient_steps(averaging, type(optimizer).__name__)

    return check


def sgd_alone(averaging: str) -> Callable[[Optimizer], None]:
    """The same, and for SGD with a momentum."""

    def check(optimizer: Optimizer) -> None:
        sgd(averaging)(optimizer)
        for group in optimizer.param_groups:
            if group["momentum"]:
                raise momentum_twice(averaging, float(group["momentum"]))

    return check


def check_beta(beta: float) -> None:
    """Raise a SettingsError where a momentum would not fade."""
    if not 0 <= beta < 1:
        raise out_of_range("beta", beta, "0 or more and below 1", "0.9 is common")
