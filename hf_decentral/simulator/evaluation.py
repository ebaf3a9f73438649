"""How good the mean of the workers is."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from hf_decentral.simulator.base import Problem

VALID_SAMPLES = 256
"""Validation samples that are evaluated at once."""


def spread(parts: Iterable[Tensor]) -> float:
    """Consensus distance of workers of which each part is ``[K, P]``: ``sqrt(mean_i ||x_i - mean||^2)``."""
    squares = 0.0
    for part in parts:
        x = part.double()
        squares += float((x - x.mean(0)).square().sum(1).mean())
    return float(squares**0.5)


class Evaluation:
    """Evaluates parameters on the validation data of a problem.

    Args:
        problem: whose model (copied), loss and data.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._model = copy.deepcopy(problem.model).eval()

    @torch.no_grad()
    def __call__(self, params: dict[str, Tensor]) -> tuple[float, float | None]:
        """The loss, and the accuracy where targets are classes."""
        problem = self._problem
        loss, right, told = 0.0, 0, 0
        parts = (torch.split(part, VALID_SAMPLES) for part in problem.valid)
        for inputs, targets in zip(*parts, strict=True):
            outputs = functional_call(self._model, params, (inputs,))
            loss += float(problem.loss(outputs, targets)) * len(targets)
            if _classes(problem, outputs, targets):
                right += int((outputs.argmax(-1) == targets).sum())
                told += targets.numel()
        return loss / len(problem.valid[1]), right / told if told else None


def _classes(problem: Problem, outputs: Any, targets: Tensor) -> bool:
    return problem.classifies and isinstance(outputs, Tensor) and outputs.shape[:-1] == targets.shape
