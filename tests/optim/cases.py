"""A small training problem that a process and the stacked simulator both can run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from hf_decentral import AccumAdamW
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology

SHAPES = ((7, 5), (5,), (3, 2, 4), ())


def pairs(workers: int) -> Topology:
    """Neighbours in turn: (0,1)(2,3), then (1,2)(3,0)."""
    even = [(i, i + 1) for i in range(0, workers - 1, 2)]
    odd = [(i, (i + 1) % workers) for i in range(1, workers, 2)]
    return Topology.cycle("pairs", [Round.average(g, workers) for g in (even, odd)])


def ring(workers: int) -> Topology:
    """A third from each side and from oneself."""
    rows = [tuple(sorted((j % workers, 1 / 3) for j in (i - 1, i, i + 1))) for i in range(workers)]
    return Topology.cycle("ring", [Round(tuple(rows))])


def parameters(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Starting values, the same everywhere."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def gradient(x: Tensor, worker: int, step: int, k: int) -> Tensor:
    """The gradient of worker ``worker``: of its own quadratic, with noise that depends on the step."""
    generator = torch.Generator().manual_seed(1000 * worker + 10 * step + k)
    noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)
    return (x - math.sin(worker)) * 0.5 + 0.1 * noise


def train_stacked(params: Sequence[Tensor], optimizer: Optimizer, steps: int, workers: int) -> None:
    """All workers in one process: parameters ``[W, *shape]``."""
    for step in range(steps):
        for k, p in enumerate(params):
            p.grad = torch.stack([gradient(p.detach()[w], w, step, k) for w in range(workers)])
        optimizer.step()


def train_one(params: Sequence[Tensor], optimizer: Optimizer, steps: int, worker: int) -> None:
    """One worker of several processes."""
    for step in range(steps):
        for k, p in enumerate(params):
            p.grad = gradient(p.detach(), worker, step, k)
        optimizer.step()


OPTIMIZERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=0.05),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.05, weight_decay=0.1),
    "accumadamw": lambda params: AccumAdamW(params, lr=0.05, weight_decay=0.1, accum=3),
}
