"""What methods share: sums with learning rates, what they remember, and memory between two rounds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_decentral.averaging.base import State
from hf_decentral.codecs import Span
from hf_decentral.rounds import Round
from hf_decentral.transport.combine import HALF

Rate = float | Tensor
"""One number, or ``[P]``."""


def inverse(rate: Rate) -> Rate:
    """``1 / rate``; 0 where the rate is 0, which moves no parameter and so tells nothing of a gradient."""
    if isinstance(rate, Tensor):
        return torch.where(rate == 0, rate, rate.reciprocal())
    return 1.0 / rate if rate else 0.0


def add_(x: Tensor, y: Tensor, factor: Rate, sign: float = 1.0) -> Tensor:
    """``x += sign factor y`` for ``x, y [W, P]``."""
    if isinstance(factor, Tensor):
        return x.add_(y * factor, alpha=sign)
    return x.add_(y, alpha=sign * factor)


def wide(x: Tensor) -> torch.dtype:
    """What is summed up over many steps is kept in single precision at least."""
    return torch.float32 if x.dtype in HALF else x.dtype


def remember(state: State, name: str, x: Tensor) -> None:
    """Begin with zeros as long as ``x``, unless a checkpoint told the item already."""
    if name not in state:
        state[name] = torch.zeros_like(x, dtype=wide(x))


def remember_momentum(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
    """Begin with no momentum, and with the parameters before the first step."""
    remember(state, "momentum", x)
    state.setdefault("before", x.clone())


def space(state: State, name: str, x: Tensor, vectors: int = 1) -> Tensor:
    """Scratch memory ``[W, vectors P]`` in wide precision, which holds nothing between rounds."""
    found = state.scratch.get(name)
    if found is None:
        found = state.scratch[name] = x.new_empty((len(x), vectors * x.shape[1]), dtype=wide(x))
    return found
