"""How much memory a run takes, before it takes it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from hf_decentral.averaging import State
from hf_decentral.errors.simulator import beyond_memory
from hf_decentral.optim.plan import Plan
from hf_decentral.simulator.gradients import CHUNK_BYTES
from hf_decentral.simulator.per_worker import Make

# In multiples of the parameters of all workers.
_ALWAYS = 7  # parameters, gradients, what is received, and four temporaries: those of the consensus distance
_LATE = 2  # what travels while parameters move on, and what it was when it left
_BEHIND = 1  # the sum of codes
_SCRATCH = 2  # what a method that remembers makes of it in a round
_COPIES = 4  # of one model: one that is trained, one that is judged, two that are tried
_SAMPLE = 4096  # numbers on which a method shows what it remembers


def check(model: nn.Module, make: Make, plan: Plan) -> int:
    """See that a run fits in the memory of this machine; returns about how many bytes it takes.

    Args:
        model: of each worker.
        make: makes its optimizer.
        plan: how all of them gossip.

    Raises:
        SettingsError: it does not fit; told is what would.
    """
    params = [p for p in model.parameters() if p.requires_grad]
    numbers, size = sum(p.numel() for p in params), sum(p.nbytes for p in params)
    each = int((_ALWAYS + _method(plan)) * size) + _optimizer(model, make)
    whole = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    once = CHUNK_BYTES + _COPIES * whole
    workers = plan.topology.workers
    if all(p.device.type == "cpu" for p in params):
        _fit(workers, numbers, each, once)
    return workers * each + once


def check_least(workers: int, numbers: int) -> None:
    """Refuse what cannot fit, before a model is made.

    Args:
        workers: how many.
        numbers: parameters that each has at least, in single precision.

    Raises:
        SettingsError: that alone is more than is free; told is what would fit.
    """
    _fit(workers, numbers, _ALWAYS * numbers * torch.float32.itemsize, 0)


def _fit(workers: int, numbers: int, each: int, once: int) -> None:
    """Raise SettingsError where ``each`` bytes of every worker, and ``once``, are more than is free."""
    needed, free = workers * each + once, psutil.virtual_memory().available
    if needed > free:
        room = max(0, free - once)
        fits = room * numbers // (each * workers)
        raise beyond_memory(workers, numbers, needed / 1e9, free / 1e9, room // each, fits)


def _optimizer(model: nn.Module, make: Make) -> int:
    """Bytes that the optimizer of one worker remembers, seen after a step."""
    trial = copy.deepcopy(model)
    optimizer = make(trial)
    for p in trial.parameters():
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    optimizer.step()
    return sum(t.nbytes for t in _tensors(list(optimizer.state.values())))


def _method(plan: Plan) -> float:
    """What the averaging method and the delay take, in multiples of the parameters."""
    kept = float(_LATE * plan.late + _BEHIND * plan.method.background)
    if plan.method.prepare is not None:
        kept += _SCRATCH
        state = State()
        x = torch.zeros(1, _SAMPLE)
        plan.method.prepare(x, plan.topology.repeated() or (), [(0, (_SAMPLE,))], state)
        kept += sum(t.nbytes for t in _tensors(dict(state))) / x.nbytes
    return kept


def _tensors(items: Any) -> Iterator[Tensor]:
    if isinstance(items, Tensor):
        yield items
    elif isinstance(items, dict | list | tuple):
        for item in items.values() if isinstance(items, dict) else items:
            yield from _tensors(item)
