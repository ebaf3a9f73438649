"""The times of the steps of a run as it is: the loop, the Trainer and the optimizer are the user's own.

Hooks tell when the forward pass ended, when each gradient was there, and when the optimizer began and ended
its step. Where an optimizer gossips, its exchanges begin and end in hooks of the same step; a step is taken
from before all of them to after all of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hf_decentral.cluster.timers import Mark, Timer, timer

MOST_RECORDS = 1000
"""Steps that are kept, the latest ones."""


class Record(NamedTuple):
    """One step, in seconds since the end of the step before.

    Attributes:
        compute_seconds: when the optimizer began: data, forward and backward, of all micro-batches.
        forward_seconds: when the (last) forward pass of the model ended; None where no model was given.
        ready_seconds: when each trained parameter had its (last) gradient, ``[P]``; NaN: it had none.
        local_seconds: how long the optimizer's own step took.
    """

    compute_seconds: float
    forward_seconds: float | None
    ready_seconds: Sequence[float]
    local_seconds: float


@dataclass(frozen=True)
class Steps:
    """What the steps of one worker come to; small enough to be sent to the others.

    Attributes:
        compute_seconds: of each step, in their order.
        local_seconds: of each step.
        forward_share: share of forward in :attr:`compute_seconds`; None where it is not known.
        ready: of each parameter that had a gradient, when, as a share of the step's compute time, and its
            bytes.
        parameter_bytes: bytes of all trained parameters.
    """

    compute_seconds: tuple[float, ...]
    local_seconds: tuple[float, ...]
    forward_share: float | None
    ready: tuple[tuple[float, int], ...]
    parameter_bytes: int


class _Lap:
    """The marks of a step that has ended, of which some may still be on their way."""

    __slots__ = ("began", "ended", "forward", "ready", "started")

    def __init__(
        self, started: Mark, forward: Mark | None, ready: list[Mark | None], began: Mark, ended: Mark
    ) -> None:
        self.started, self.forward, self.ready = started, forward, ready
        self.began, self.ended = began, ended


class Stopwatch:
    """Times the steps of an optimizer from its next step on, until it is removed.

    A step in which the model was evaluated is not counted. On a GPU the times are those of its own stream;
    nothing waits for it, and the records of the latest steps come when they have run.

    Args:
        optimizer: a torch optimizer, decentralized or not; under a wrapper, the one inside.
        model: the model whose forward pass is timed.
        hooked: it learns of the optimizer's steps by hooks of its own. Without, who has made it calls
            :meth:`before` and :meth:`after`: needed inside such a hook, where torch takes no other.

    Attributes:
        taken: steps that have ended since it was made or cleared, those included that are in no record.
    """

    def __init__(self, optimizer: Optimizer, model: nn.Module | None = None, hooked: bool = True) -> None:
        self._optimizer = optimizer
        params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._bytes = [p.numel() * p.element_size() for p in params]
        self._timer: Timer = timer(params[0].device if params else torch.device("cpu"))
        self._records: deque[Record] = deque(maxlen=MOST_RECORDS)
        self._laps: deque[_Lap] = deque()
        self._ready: list[Mark | None] = [None] * len(params)
        self._started: Mark | None = None
        self._forward: Mark | None = None
        self._began: Mark | None = None
        self._depth = 0
        self._spoilt = False
        self.taken = 0
        self._hooks: list[Any] = []
        if hooked:
            # Global hooks: those before a step run before the optimizer's own, those after it run after them.
            self._hooks += [
                register_optimizer_step_pre_hook(self.before),
                register_optimizer_step_post_hook(self.after),
            ]
        for k, p in enumerate(params):
            self._hooks.append(p.register_post_accumulate_grad_hook(partial(self._arrived, k)))
        if model is not None:
            self._hooks.append(model.register_forward_hook(self._passed))

    @property
    def records(self) -> list[Record]:
        """The steps that were timed, oldest first; waits for those that the GPU has not done yet."""
        while self._laps:
            self._read(self._laps.popleft())
        return list(self._records)

    def clear(self) -> None:
        """Forget all steps, and begin with the next one: what happens until then is in no step."""
        self._laps.clear()
        self._records.clear()
        self._started, self.taken = None, 0

    def remove(self) -> None:
        """Take all hooks away. The records stay."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def steps(self) -> Steps:
        """What the records come to."""
        return summary(self.records, self._bytes)

    # A step that raised leaves its depth behind: a pass or a gradient tells that it is over.

    def _passed(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth = 0
        if module.training:
            self._forward = self._timer.mark()
        else:
            self._spoilt = True

    def _arrived(self, k: int, p: Tensor) -> None:
        self._depth = 0
        self._ready[k] = self._timer.mark()

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Called before any optimizer's step."""
        if optimizer is not self._optimizer:
            return
        self._depth += 1
        if self._depth == 1:  # else the step of a class that calls that of the one above it
            self._began = self._timer.mark()

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Called after any optimizer's step."""
        if optimizer is not self._optimizer:
            return
        self._depth -= 1
        if self._depth > 0 or self._began is None:
            return
        self._depth = 0
        ended = self._timer.mark()
        self.taken += 1
        if self._started is not None and not self._spoilt:
            self._laps.append(_Lap(self._started, self._forward, self._ready, self._began, ended))
            self._ready = [None] * len(self._ready)
        self._started, self._forward, self._began, self._spoilt = ended, None, None, False
        while self._laps and self._timer.passed(self._laps[0].ended):
            self._read(self._laps.popleft())

    def _read(self, lap: _Lap) -> None:
        since = partial(self._timer.seconds, lap.started)
        local = self._timer.seconds(lap.began, lap.ended)  # waits for the last mark, before all others
        self._records.append(
            Record(
                since(lap.began),
                None if lap.forward is None else since(lap.forward),
                [math.nan if mark is None else since(mark) for mark in lap.ready],
                local,
            )
        )


def summary(records: Sequence[Record], sizes: Sequence[int]) -> Steps:
    """What the steps of a worker come to.

    Args:
        records: the steps.
        sizes: bytes of each trained parameter, ``[P]``.
    """
    forward = [each.forward_seconds / each.compute_seconds for each in records if each.forward_seconds]
    ready = []
    for k, size in enumerate(sizes):
        shares = [each.ready_seconds[k] / each.compute_seconds for each in records]
        seen = [share for share in shares if not math.isnan(share)]
        if seen:
            ready.append((min(1.0, median(seen)), size))
    return Steps(
        tuple(each.compute_seconds for each in records),
        tuple(each.local_seconds for each in records),
        median(forward) if forward else None,
        tuple(ready),
        sum(sizes),
    )
