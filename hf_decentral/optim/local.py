"""What an averaging method may know, and change, of the local step: gradients and learning rates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from hf_decentral.averaging import Averaging, State
from hf_decentral.optim.bucket import Buckets
from hf_decentral.transport.combine import HALF


class Rates:
    """The learning rates of an optimizer, bucket by bucket.

    Args:
        optimizer: whose groups have them.

    Attributes:
        optimizer: that optimizer.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._step = -1
        self._rates: dict[int, float] = {}
        self._vectors: dict[int, tuple[tuple[float, ...], Tensor]] = {}

    def of(self, buckets: Buckets, lane: int, step: int) -> float | Tensor:
        """The rate of a bucket in a step: one number, or ``[P]`` where its parameters differ."""
        if step != self._step or not lane:  # once a step, in which all lanes begin
            groups = [group for group in self.optimizer.param_groups if "lr" in group]
            self._rates = {id(p): float(group["lr"]) for group in groups for p in group["params"]}
            self._step = step
        members, flat = buckets.members[lane], buckets.flats[lane]
        found = tuple(self._rates.get(id(p), 1.0) for p in members)
        if len(set(found)) == 1:
            return found[0]
        key, vector = self._vectors.get(lane, ((), flat[0]))
        if key != found or vector.shape != flat.shape[1:]:
            # In half precision a small rate would be none, and its inverse infinite.
            rows = flat.new_ones(1, flat.shape[1], dtype=torch.float32 if flat.dtype in HALF else flat.dtype)
            for params, view in buckets.parts(lane, rows):
                view.fill_(self._rates.get(id(params[0]), 1.0))
            vector = rows[0]
            self._vectors[lane] = found, vector
        return vector


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
