"""One local step in pieces, so that the wire is busy while it is taken.

Piece by piece: wait for its exchange, combine, take the local step of its parameters alone, and send them at
once. The exchange of the next step then begins while the last pieces of this one still arrive; with one step
for all parameters the wire would stand still from the last arrival to the first departure. An optimizer that
treats every number, or every parameter, by itself gives the same result to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from hf_decentral.optim.accum_adam import AccumAdam, AccumAdamW

# Exactly these: a subclass may count its steps, or look at all parameters, in a way of its own.
SEPARABLE: tuple[type[Optimizer], ...] = (
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
    AccumAdam,
    AccumAdamW,
)


def separable(optimizer: Optimizer) -> bool:
    """True where a step over some of the parameters, then over the others, is a step over all of them."""
    return type(optimizer) in SEPARABLE


class Pieces:
    """Shows an optimizer a part of its parameters at a time."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._whole: list[list[Tensor]] = []

    def take(
        self, pieces: Sequence[Sequence[Tensor]], ready: Callable[[int], None], sent: Callable[[int], None]
    ) -> None:
        """Step all pieces but the last, whose turn is the optimizer's own step, which follows.

        Args:
            pieces: the parameters of each bucket.
            ready: called before the step of a piece, with its number.
            sent: called after it.
        """
        step = type(self._optimizer).step.__wrapped__  # type: ignore[attr-defined]  # without the hooks
        groups = self._optimizer.param_groups
        self._whole = [group["params"] for group in groups]
        numbers = {id(p): k for k, piece in enumerate(pieces) for p in piece}
        last = len(pieces) - 1
        parts = [
            [[p for p in params if numbers.get(id(p), last) == k] for params in self._whole]
            for k in range(last + 1)
        ]
        try:
            for k, part in enumerate(parts):
                ready(k)
                for group, params in zip(groups, part, strict=True):
                    group["params"] = params
                if k < last:
                    step(self._optimizer)
                    sent(k)
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Show all parameters again."""
        for group, params in zip(self._optimizer.param_groups, self._whole, strict=False):
            group["params"] = params
        self._whole = []
