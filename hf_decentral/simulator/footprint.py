"""How much memory a run takes, before it takes it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from hf_decentral import averaging
from hf_decentral.averaging import State
from hf_decentral.errors.simulator import beyond_memory
from hf_decentral.simulator.gradients import CHUNK_BYTES
from hf_decentral.simulator.per_worker import Make
from hf_decentral.topology.base import Topology

# Parameters, gradients, what is received, and two temporaries: of the local step (Adam's denominator) and of
# the consensus distance.
_ALWAYS = 5
_SENT = 3  # a copy or a code of what is sent, where the method makes one, its sum, and what was lost
_SAMPLE = 4096  # numbers on which a method shows what it remembers


def check(model: nn.Module, make: Make, method: str, topology: Topology) -> int:
    """See that a run fits in the memory of this machine; returns the bytes that it takes.

    Args:
        model: of each worker.
        make: makes its optimizer.
        method: name of the averaging method.
        topology: of all workers.

    Raises:
        SettingsError: it does not fit; told is what would.
    """
    params = [p for p in model.parameters() if p.requires_grad]
    numbers = sum(p.numel() for p in params)
    size = sum(p.nbytes for p in params)
    each = _ALWAYS * size + _optimizer(model, make) + int(_remembered(method, topology) * size)
    needed = topology.workers * each + CHUNK_BYTES
    free = psutil.virtual_memory().available
    if needed > free and all(p.device.type == "cpu" for p in params):
        room = max(0, free - CHUNK_BYTES)
        raise beyond_memory(
            topology.workers,
            numbers,
            needed / 1e9,
            free / 1e9,
            room // each,
            room * numbers // (each * topology.workers),
        )
    return needed


def _optimizer(model: nn.Module, make: Make) -> int:
    """Bytes that the optimizer of one worker remembers, after a step without gradients to speak of."""
    trial = copy.deepcopy(model)
    optimizer = make(trial)
    for p in trial.parameters():
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    optimizer.step()
    return sum(t.nbytes for t in _tensors(list(optimizer.state.values())))


def _remembered(method: str, topology: Topology) -> float:
    """What an averaging method keeps, in multiples of the parameters."""
    found = averaging.build(method)
    kept = float(_SENT if found.background or found.land is not None or found.informed else 0)
    if found.prepare is not None:
        state = State()
        x = torch.zeros(1, _SAMPLE)
        found.prepare(x, topology.repeated() or (), [(0, (_SAMPLE,))], state)
        kept += sum(t.nbytes for t in _tensors(dict(state))) / x.nbytes
    return kept


def _tensors(items: Any) -> Iterator[Tensor]:
    if isinstance(items, Tensor):
        yield items
    elif isinstance(items, dict | list | tuple):
        for item in items.values() if isinstance(items, dict) else items:
            yield from _tensors(item)
