"""All workers of a run in one process, step by step."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hf_decentral.algorithms import Algorithm
from hf_decentral.errors.simulator import not_finite
from hf_decentral.integrations import optimizers
from hf_decentral.optim import decentralize, gossip
from hf_decentral.optim.plan import Order
from hf_decentral.simulator import per_worker, shards
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.counted import Counted
from hf_decentral.simulator.gradients import Gradients, stacked
from hf_decentral.topology.base import Topology

VALID_SAMPLES = 256
"""Validation samples that are evaluated at once."""


@dataclass(frozen=True)
class Setup:
    """What determines a run.

    Attributes:
        problem: what is trained.
        algorithm: how.
        topology: who averages with whom, where the algorithm lets one choose.
        workers: number of workers.
        batch: samples of each worker in each step.
        seed: of shards and batches.
        skew: of the shards.
        skip: leave gradients out that are not finite, and go on; else the run ends with an error.
    """

    problem: Problem
    algorithm: Algorithm
    topology: str | Topology
    workers: int
    batch: int
    seed: int = 0
    skew: float | None = None
    skip: bool = False


class Simulation:
    """Workers that train together, in lock step.

    Args:
        setup: what is run.
        chunk: workers whose gradients are computed at once; None: see :class:`Gradients`.

    Attributes:
        params: by name ``[W, *shape]``.
        optimizer: the decentralized optimizer of all workers.
        handle: what stands behind ``gossip(optimizer)``.
        done: steps taken.
        skipped: gradients that were left out, of all workers.
    """

    def __init__(self, setup: Setup, chunk: int | None = None) -> None:
        problem, algorithm = setup.problem, setup.algorithm
        self.setup = setup
        self.done = 0
        self.skipped = 0
        self.params = stacked(problem.model, setup.workers)
        self.transport = Counted(setup.workers)
        divided = shards.split(problem, setup.workers, setup.skew, setup.seed)
        self.gradients = Gradients(problem, self.params, divided, setup.batch, chunk)
        self.optimizer = decentralize(
            per_worker.over(self.params, problem.model, self._optimizer),
            model=nn.Module(),  # nobody calls it: "cta" wants one, and combines in `compute`
            transport=self.transport,
            guard=False,  # it would drop the gradients of all workers; `compute` looks at each
            **how(algorithm, setup.topology),
        )
        self.handle = gossip(self.optimizer)
        self._judge = copy.deepcopy(problem.model).eval()
        self._losses: Tensor | None = None

    def compute(self) -> float:
        """Compute the gradients of the next step; returns the mean loss of the workers on their batches.

        Raises:
            DecentralizedError: numbers that are not finite, with the workers that had them.
        """
        if self._losses is None:
            if self.handle.plan.order is Order.CTA:
                self.handle.combine()
            self._losses = self.gradients(self.done)
            bad, workers = self.gradients.bad, self.setup.workers
            if bad and (not self.setup.skip or len(bad) == workers):
                raise not_finite(bad, workers, self.done)
            self.skipped += len(bad)
        fine = self._losses[self._losses.isfinite()]
        return float(fine.double().mean())

    def step(self) -> None:
        """Take one step of all workers."""
        self.compute()
        self.optimizer.step()
        self._losses = None
        self.done += 1

    @torch.no_grad()
    def mean(self) -> dict[str, Tensor]:
        """The mean of the workers' parameters."""
        return {name: p.mean(0) for name, p in self.params.items()}

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float | None]:
        """Validation loss of the mean of the workers, and its accuracy where targets are classes."""
        problem, mean = self.setup.problem, self.mean()
        loss, right, told = 0.0, 0, 0
        parts = (torch.split(part, VALID_SAMPLES) for part in problem.valid)
        for inputs, targets in zip(*parts, strict=True):
            outputs = functional_call(self._judge, mean, (inputs,))
            loss += float(problem.loss(outputs, targets)) * len(targets)
            if _classes(problem, outputs, targets):
                right += int((outputs.argmax(-1) == targets).sum())
                told += targets.numel()
        return loss / len(problem.valid[1]), right / told if told else None

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        algorithm = self.setup.algorithm
        return optimizers.build(algorithm.optimizer, model, lr=algorithm.lr, **algorithm.settings)


def how(algorithm: Algorithm, topology: str | Topology) -> dict[str, Any]:
    """The arguments of ``decentralize()``."""
    name = topology if isinstance(topology, str) else topology.name
    given = algorithm.how(name)
    if not isinstance(topology, str):
        given["topology"] = topology
    if given.get("delay") == 1:
        del given["delay"]
    return given


def _classes(problem: Problem, outputs: Any, targets: Tensor) -> bool:
    return problem.classifies and isinstance(outputs, Tensor) and outputs.shape[:-1] == targets.shape
