"""The problems that are built in, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hf_decentral.errors import unknown_name
from hf_decentral.errors.simulator import unknown_problem_setting
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.logistic import logistic
from hf_decentral.simulator.mnist import mnist_cnn, mnist_mlp
from hf_decentral.simulator.quadratic import quadratic
from hf_decentral.simulator.text import char_gpt


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        make: ``make(dim, seed, **settings)`` gives the problem.
        summary: what it is, for people.
        dim: what the number ``dim`` says of it.
    """

    make: Callable[..., Problem]
    summary: str
    dim: str


TABLE: dict[str, Entry] = {
    "char-gpt": Entry(char_gpt, "a causal transformer on characters of a text", "width"),
    "logistic": Entry(logistic, "logistic regression on drawn data", "number of features"),
    "mnist-cnn": Entry(mnist_cnn, "a small convolutional network on digits", "channels of its first layer"),
    "mnist-mlp": Entry(mnist_mlp, "a perceptron on digits", "units of its hidden layer"),
    "quadratic": Entry(quadratic, "quadratics with a known optimum", "number of parameters"),
}


def names() -> list[str]:
    """The names of all built-in problems."""
    return sorted(TABLE)


def build(name: str, dim: int | None = None, seed: int = 0, **settings: Any) -> Problem:
    """A problem by name.

    Args:
        name: one of :func:`names`.
        dim: its size, see :attr:`Entry.dim`; None: a small one.
        seed: of the starting weights and, where they are drawn, of the data.
        settings: of that problem; its function tells them.

    Raises:
        SettingsError: an unknown name or setting, or a number out of its range.
        DataError: its data are not there.
    """
    if name not in TABLE:
        raise unknown_name("problem", name, TABLE)
    make = TABLE[name].make
    known = [each for each in inspect.signature(make).parameters if each not in ("dim", "seed")]
    for setting in settings:
        if setting not in known:
            raise unknown_problem_setting(name, setting, known)
    return make(seed=seed, **settings) if dim is None else make(dim, seed, **settings)
