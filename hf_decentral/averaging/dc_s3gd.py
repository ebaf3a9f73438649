"""Delay compensation: a gradient that was taken before the average came is corrected for the way between."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.gradient_steps import sgd
from hf_decentral.averaging.scaled import space, wide
from hf_decentral.errors import out_of_range
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send


def dc_s3gd(lam: float) -> Averaging:
    """``g <- g + lam' g g D``, ``D`` the average less the own parameters (DC-S3GD: Rigazzi 2019, arXiv
    1911.02516, with the mean of all: topology ``complete``).

    In adapt-while-combine a step starts from the average, with a gradient taken before. ``g g`` stands for
    the diagonal of the curvature, so that this is about the gradient where the step starts. ``lam'`` is ``lam
    |g| / |g g D|``, Euclidean norms of each worker over a bucket: the correction is ``lam`` times as long as
    the gradient. A gradient that was taken after the average had come (because of
    ``gossip(optimizer).flush()``) needs no correction and gets none.

    Args:
        lam: length of the correction beside that of the gradient, 0 or more.
    """
    if not lam >= 0:
        raise out_of_range("lam", lam, "0 or more", "0.2 is common, 0 corrects nothing")

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        averaged: Tensor = yield Send(round, x)
        moved = torch.sub(averaged, x, out=space(state, "moved", x))
        # The scale would make a whole correction of the rounding of a mean of equal numbers.
        rounding = 4 * sqrt(round.workers) * torch.finfo(moved.dtype).eps
        moved.mul_(_length(moved) > rounding * _length(x))
        return averaged

    def gradient(g: Tensor, x: Tensor, state: State) -> None:
        moved = state.scratch.get("moved")
        if lam and state.local.stale and moved is not None:
            length = _length(g)
            # Of the direction of g, not of g: squares of small numbers would vanish.
            curved = torch.div(g, length, out=space(state, "curved", x)).square_().mul_(moved)
            scale = lam * length / _length(curved)
            g.add_(curved.mul_(scale).nan_to_num_(0.0, 0.0, 0.0))

    return Averaging(
        exchange,
        gradient=gradient,
        orders=("awc",),
        delays=False,
        check_optimizer=sgd("dc_s3gd"),
    )


def _length(x: Tensor) -> Tensor:
    """Of each row of ``[W, P]``, as ``[W, 1]``."""
    length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=wide(x))
    return length
