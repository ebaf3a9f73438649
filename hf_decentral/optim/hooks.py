"""The step hooks through which an optimizer gossips, whoever holds it, wraps it or schedules its rate."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hf_decentral.errors.parameters import between_rounds, cannot_begin_early, closure_given, wrong_checkpoint
from hf_decentral.optim.handle import Gossip
from hf_decentral.optim.pieces import Early, Pieces, separable
from hf_decentral.optim.plan import Order

logger = logging.getLogger(__name__)

STATE_KEY = "hf_decentral"
"""The key under which ``state_dict()`` of a decentralized optimizer holds where its rounds stand."""


class Hooks:
    """Calls a :class:`Gossip` around every step of an optimizer.

    Args:
        optimizer: the user's optimizer.
        gossip: the handle.
        guard: drop a local update whose gradient is not finite; None: on the CPU only, where looking is cheap
            (on an accelerator it makes the host wait for the gradients).
        early: take the step of each bucket inside backward, for which :func:`check_early` was asked.
    """

    def __init__(self, optimizer: Optimizer, gossip: Gossip, guard: bool | None, early: bool = False) -> None:
        self._gossip = gossip
        self._guard = guard
        self._outermost: FrameType | None = None
        self._warned = False
        self._pieces = Pieces(optimizer, gossip) if separable(optimizer) else None
        self._early: Early | None = None
        if early and gossip.workers > 1 and self._pieces is not None:
            self._early = Early(gossip, self._pieces, self._look)
        optimizer.register_state_dict_pre_hook(self._whole)
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        optimizer.register_state_dict_post_hook(self._save)
        optimizer.register_load_state_dict_pre_hook(self._load)
        # GradScaler then calls step() even where it found an overflow, so that the round is not missed.
        optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        caller = sys._getframe(1)
        if self._outermost is not None and _runs_inside(caller, self._outermost):
            return  # step() of a class that calls super().step(): one step, one round
        if self._gossip.workers > 1 and (kwargs.get("closure") or any(a is not None for a in args[1:2])):
            raise closure_given()
        self._outermost = caller
        self._whole(optimizer)
        self._refuse_late(optimizer)
        grads = _unscaled(optimizer)
        self._drop(grads, _parameters(optimizer))
        with torch.no_grad():
            done = self._early.done if self._early is not None else ()
            if self._pieces is None or not self._pieces.before_step(done):
                self._gossip.before_step()

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if sys._getframe(1) is not self._outermost:
            return
        self._outermost = None
        with torch.no_grad():
            self._whole(optimizer)
            self._gossip.after_step()
            if self._early is not None:
                self._early.watch()

    def _whole(self, optimizer: Optimizer) -> None:
        """Show all parameters again: after a step in pieces, also one that ended in an error."""
        if self._pieces is not None:
            self._pieces.after_step()

    def _refuse_late(self, optimizer: Optimizer) -> None:
        """With steps inside backward, nobody may change gradients after it."""
        if self._early is None or not self._early.done:
            return
        if _scaled(optimizer):
            raise cannot_begin_early(optimizer, "a gradient scaler divides its gradients after backward")
        if self._early.changed():
            raise cannot_begin_early(optimizer, "its gradients were changed after backward (clipping?)")

    def _look(self, params: Sequence[Tensor]) -> None:
        self._drop([p.grad for p in params if p.grad is not None], params)

    def _drop(self, grads: list[Tensor], params: Iterable[Tensor]) -> None:
        """Without gradients the local step does nothing, and the exchange goes on in step with the others."""
        if grads and self._guarded(grads[0]) and not finite(grads):
            for p in params:
                p.grad = None
            self._gossip.skipped += 1
            self._warn()

    def _guarded(self, grad: Tensor) -> bool:
        return grad.device.type == "cpu" if self._guard is None else self._guard

    def _warn(self) -> None:
        if not self._warned:
            logger.warning(
                "worker %d: a gradient was not finite in step %d; the local update was dropped, the exchange "
                "goes on. gossip(optimizer).skipped counts further ones.",
                self._gossip.worker,
                self._gossip.step,
            )
        self._warned = True

    def _save(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        if self._early is not None and self._early.done:
            raise between_rounds()
        return {**state_dict, STATE_KEY: self._gossip.state()}

    def _load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        state = state_dict.get(STATE_KEY, {})
        expected = self._gossip.plan.averaging
        found = state.get("averaging", expected)
        if found != expected:
            raise wrong_checkpoint(f"averaging {found!r}", f"averaging {expected!r}")
        plan = self._gossip.plan  # what a method remembers belongs to the buckets that it had
        size = state.get("bucket_mb", plan.bucket_mb)
        if size != plan.bucket_mb and any(state.get("states", ())):
            raise wrong_checkpoint(f"bucket_mb {size:g}", f"bucket_mb {plan.bucket_mb:g}")
        delay = state.get("delay", plan.delay)
        if delay != plan.delay and any(each.get("begun") is not None for each in state.get("states") or ()):
            raise wrong_checkpoint(f"delay {delay}", f"delay {plan.delay}")
        self._gossip.load(state)


def _runs_inside(frame: FrameType, outer: FrameType) -> bool:
    """True while ``outer`` is on the stack below ``frame``; an outer step that raised is not."""
    below: FrameType | None = frame.f_back
    while below is not None and below is not outer:
        below = below.f_back
    return below is outer


def _gradients(optimizer: Optimizer) -> list[Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    return (p for group in optimizer.param_groups for p in group["params"])


def check_early(optimizer: Optimizer, gossip: Gossip) -> None:
    """See that steps can be taken inside backward.

    Raises:
        ParameterError: they cannot.
    """
    if not separable(optimizer):
        raise cannot_begin_early(optimizer, "its step cannot be taken parameter by parameter")
    if gossip.plan.order is not Order.AWC:
        raise cannot_begin_early(optimizer, f"its order is {gossip.plan.order.value!r}")
    if len(gossip.transport.local) > 1:
        raise cannot_begin_early(optimizer, "several workers live in this process")


def _scaled(optimizer: Optimizer) -> bool:
    """Whether GradScaler takes this step."""
    return any(getattr(optimizer, name, None) is not None for name in ("found_inf", "grad_scale"))


@torch.no_grad()
def _unscaled(optimizer: Optimizer) -> list[Tensor]:
    """The gradients as the local step shall see them: divided by GradScaler's scale, or none on overflow."""
    found_inf, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
    if found_inf is not None and bool(found_inf):
        for p in _parameters(optimizer):
            p.grad = None
    elif scale is not None:
        torch._foreach_mul_(_gradients(optimizer), 1.0 / float(scale))
    if found_inf is not None or scale is not None:
        optimizer.found_inf = optimizer.grad_scale = None  # type: ignore[attr-defined]  # done: not again in a fused step
    return _gradients(optimizer)


@torch.no_grad()
def finite(tensors: list[Tensor]) -> bool:
    """Whether there is no NaN and no infinity in any of these."""
    dense = [t._values() if t.is_sparse else t for t in tensors if t.numel()]
    # The Euclidean norm takes a ninth of the time of the largest modulus; it may overflow on finite numbers.
    norms = torch._foreach_norm(dense) if dense else ()
    return all(bool(n.isfinite()) or bool(t.isfinite().all()) for n, t in zip(norms, dense, strict=True))
