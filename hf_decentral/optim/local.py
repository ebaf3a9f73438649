"""What an averaging method may know, and change, of the local step: gradients and learning rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from hf_decentral.averaging import Averaging, State
from hf_decentral.optim.bucket import Buckets

Rates = Callable[[], dict[int, float]]
"""Gives the learning rate of each parameter, by ``id``."""


def rates(optimizer: Optimizer) -> dict[int, float]:
    """The learning rate of each parameter, by ``id``."""
    return {
        id(p): float(group["lr"])
        for group in optimizer.param_groups
        if "lr" in group
        for p in group["params"]
    }


def rate_of(buckets: Buckets, lane: int, rates: Mapping[int, float]) -> float | Tensor:
    """The learning rate of a bucket: one number, or ``[P]`` where its parameters differ."""
    found = {rates.get(id(p), 1.0) for p in buckets.members[lane]}
    if len(found) == 1:
        return found.pop()
    flat = buckets.flats[lane]
    vector = flat.new_ones(1, flat.shape[1])
    for params, view in buckets.parts(lane, vector):
        view.fill_(rates.get(id(params[0]), 1.0))
    return vector[0]


@torch.no_grad()
def adjust(method: Averaging, buckets: Buckets, lane: int, state: State, stale: bool) -> None:
    """Let a method change the gradients of a bucket, once its average is there.

    Args:
        stale: the gradients were taken before the average came.
    """
    if method.gradient is None:
        return
    state.local.stale = stale
    x = buckets.flats[lane]
    g = state.scratch.get("gradient")
    if g is None or g.shape != x.shape or g.device != x.device:
        g = state.scratch["gradient"] = torch.zeros_like(x)
    for params, view in buckets.parts(lane, g):
        grad = _gradient(params)
        view.zero_() if grad is None else view.copy_(grad)
    method.gradient(g, x, state)
    for params, view in buckets.parts(lane, g):
        grad = _gradient(params)
        if grad is not None:
            grad.copy_(view)


def _gradient(params: Sequence[Tensor]) -> Tensor | None:
    """That of the first of tied parameters which has one."""
    return next((p.grad for p in params if p.grad is not None), None)
