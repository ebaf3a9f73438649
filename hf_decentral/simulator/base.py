"""What is trained in the simulator: a model, a loss and data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hf_decentral.errors.simulator import unequal_lengths

Data = tuple[Tensor, Tensor]
"""Inputs and targets; entry ``i`` of both along the first axis is one sample."""


@dataclass(frozen=True)
class Problem:
    """A model, a loss and data; any torch module will do.

    Attributes:
        name: what it is called in tables.
        model: its parameters are where every worker begins. Buffers must not change in a forward pass.
        loss: ``loss(model(inputs), targets)`` gives the mean over a batch, a tensor without axes.
        train: what the workers share out among them, ``N`` samples.
        valid: on which the mean of the workers is measured.
        batch: samples of each worker in each step.
        optimum: the smallest validation loss, where it is known.
        groups: ``[N]``, the kind of each training sample as a whole number, by which shards are skewed; None:
            the class where targets are classes, else tenths of the data by target or position.

    Raises:
        DataError: not as many inputs as targets, or none.
    """

    name: str
    model: nn.Module
    loss: Callable[[Any, Tensor], Tensor]
    train: Data
    valid: Data
    batch: int = 16
    optimum: float | None = None
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        for part, (inputs, targets) in (("train", self.train), ("valid", self.valid)):
            if len(inputs) != len(targets) or not len(inputs):
                raise unequal_lengths(part, len(inputs), len(targets))
        if self.groups is not None and len(self.groups) != len(self.train[0]):
            raise unequal_lengths("groups", len(self.train[0]), len(self.groups))

    @property
    def samples(self) -> int:
        """Number of training samples, ``N``."""
        return len(self.train[0])

    @property
    def classifies(self) -> bool:
        """Whether targets are whole numbers, so that outputs can be right or wrong."""
        targets = self.train[1]
        return not (targets.is_floating_point() or targets.is_complex())
