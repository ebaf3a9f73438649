"""One local step in pieces, so that the wire is busy while it is taken.

Piece by piece: wait for its exchange, combine, and take the local step of its parameters alone, while the
next pieces still arrive. When the last one is there, all others leave at once; with one step for all
parameters the wire would stand still from the last arrival to the end of that step. An optimizer that treats
every number, or every parameter, by itself gives the same result to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from hf_decentral.errors.parameters import second_backward
from hf_decentral.optim.accum_adam import AccumAdam, AccumAdamW
from hf_decentral.optim.bucket import Buckets
from hf_decentral.optim.handle import Gossip

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
    """Takes the local step of an optimizer bucket by bucket.

    Args:
        optimizer: one that is :func:`separable`.
        gossip: its handle.
    """

    def __init__(self, optimizer: Optimizer, gossip: Gossip) -> None:
        self._optimizer = optimizer
        self._gossip = gossip
        self._whole: list[list[Tensor]] = []

    def before_step(self, done: Collection[int] = ()) -> bool:
        """Land, step and send all buckets but the last, whose turn is the optimizer's own step.

        Args:
            done: the buckets that were sent already.

        Returns:
            False where nothing was done, because this step must be taken as a whole.
        """
        buckets = self._gossip.steady()
        if buckets is None or (len(buckets.flats) < 2 and not done):
            return False
        left = [lane for lane in range(len(buckets.flats)) if lane not in done]
        for lane in left[:-1]:
            self.take(buckets, lane)
        # Nothing leaves before all has arrived: two rounds that share a link halve the rate of the one that
        # is waited for, and workers in opposite phases of that then wait for each other in every step.
        self._gossip.settle(left)  # not of those that left inside backward: they are a round ahead
        for lane in left[:-1]:
            self._gossip.leave(lane)
        for lane in left[-1:]:
            self._gossip.land(lane)
        early = {id(p) for lane, piece in enumerate(buckets.members) if lane not in left[-1:] for p in piece}
        self._show(lambda p: id(p) not in early)
        return True

    def take(self, buckets: Buckets, lane: int) -> None:
        """Land one bucket and take the step of its parameters."""
        self._gossip.land(lane)
        piece = {id(p) for p in buckets.members[lane]}
        self._show(lambda p: id(p) in piece)
        try:
            type(self._optimizer).step.__wrapped__(self._optimizer)  # type: ignore[attr-defined]  # no hooks
        finally:
            self.after_step()

    def after_step(self) -> None:
        """Show the optimizer all its parameters again."""
        for group, params in zip(self._optimizer.param_groups, self._whole, strict=False):
            group["params"] = params
        self._whole = []

    def _show(self, chosen: Callable[[Tensor], bool]) -> None:
        groups = self._optimizer.param_groups
        self._whole = [group["params"] for group in groups]
        for group in groups:
            group["params"] = [p for p in group["params"] if chosen(p)]


class Early:
    """Takes the step of a bucket inside backward, as soon as the gradients of its parameters are there.

    The wire is then busy from the first finished bucket on. Buckets leave in the order of their numbers on
    every worker, so one whose gradients are late holds back those behind it. Whatever looks at all gradients
    before the step (clipping, a gradient scaler, accumulation) comes too late.

    Args:
        gossip: the handle of an optimizer.
        pieces: how a step is taken bucket by bucket.
        finite: whether the gradients of some parameters may be used; it drops those that may not.
    """

    def __init__(self, gossip: Gossip, pieces: Pieces, finite: Callable[[Sequence[Tensor]], None]) -> None:
        self._gossip = gossip
        self._pieces = pieces
        self._finite = finite
        self._lanes: dict[int, int] = {}
        self._missing: dict[int, int] = {}
        self._buckets: Buckets | None = None
        self._hooked: set[int] = set()
        self._used: list[tuple[Tensor, Tensor, int]] = []
        self.done: set[int] = set()

    def changed(self) -> bool:
        """True where gradients were written to after they were used."""
        return any(
            p.grad is not None and (p.grad is not grad or grad._version != version)
            for p, grad, version in self._used
        )

    def watch(self) -> None:
        """After a step: wait for the gradients of the next one."""
        self.done.clear()
        self._used.clear()
        self._buckets = self._gossip.steady()
        members = self._buckets.members if self._buckets is not None else []
        self._lanes = {id(p): lane for lane, piece in enumerate(members) for p in piece}
        self._missing = {lane: len(piece) for lane, piece in enumerate(members)}
        for piece in members:
            for p in piece:
                if id(p) not in self._hooked:
                    p.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
                    self._hooked.add(id(p))

    @torch.no_grad()
    def _arrived(self, p: Tensor) -> None:
        lane = self._lanes.get(id(p))
        if lane is None or self._buckets is None:
            return
        if self._missing[lane] <= 0:
            raise second_backward()
        self._missing[lane] -= 1
        while not self._missing.get(len(self.done), 1) and self._gossip.steady() is self._buckets:
            turn = len(self.done)
            self._finite(self._buckets.members[turn])
            self._pieces.take(self._buckets, turn)
            self._gossip.leave(turn)
            self.done.add(turn)
            piece = [(p, p.grad) for p in self._buckets.members[turn]]
            self._used += [(p, grad, grad._version) for p, grad in piece if grad is not None]
