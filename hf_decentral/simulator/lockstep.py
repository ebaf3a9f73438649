"""All workers of a run in one process, step by step."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hf_decentral import topology as topologies
from hf_decentral.algorithms import Algorithm
from hf_decentral.errors import out_of_range
from hf_decentral.errors.simulator import named_topology_needed, not_finite
from hf_decentral.integrations import optimizers
from hf_decentral.optim import decentralize, gossip
from hf_decentral.optim.plan import Order
from hf_decentral.simulator import footprint, per_worker, shards
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
        whole: whether the parameters are those between two steps, so that :meth:`state` may be taken.
    """

    def __init__(self, setup: Setup, chunk: int | None = None) -> None:
        self.setup = setup
        problem = setup.problem
        arguments = how(setup)
        topology, averaging = arguments["topology"], arguments["averaging"]
        footprint.check(problem.model, self._optimizer, averaging, topology)
        self.done = self.skipped = 0
        self.params = stacked(problem.model, setup.workers)
        self.transport = Counted(setup.workers)
        divided = shards.split(problem, setup.workers, setup.skew, setup.seed)
        self.gradients = Gradients(problem, self.params, divided, setup.batch, chunk)
        self.optimizer = decentralize(
            per_worker.over(self.params, problem.model, self._optimizer),
            model=nn.Module(),  # nobody calls it: "cta" wants one, and combines in `compute`
            transport=self.transport,
            guard=False,  # it would drop the gradients of all workers; `compute` looks at each
            **arguments,
        )
        self.handle = gossip(self.optimizer)
        self.transport.kept = self.handle.plan.late_by + 1
        self.whole = True
        self._sent = 0.0
        self._judge = copy.deepcopy(problem.model).eval()
        self._losses: Tensor | None = None

    def compute(self) -> float:
        """Compute the gradients of the next step; returns the mean loss of the workers on their batches.

        Raises:
            DecentralizedError: numbers that are not finite, with the workers that had them.
        """
        if self._losses is None:
            if self.handle.plan.order is Order.CTA:
                self.whole = False
                self.handle.combine()
                self.whole = True
            losses = self.gradients(self.done)
            bad, workers = self.gradients.bad, self.setup.workers
            if bad and (not self.setup.skip or len(bad) == workers):
                raise not_finite(bad, workers, self.done)
            self._losses = losses
        fine = self._losses[self._losses.isfinite()]
        return float(fine.double().mean())

    def step(self) -> None:
        """Take one step of all workers."""
        self.compute()
        self.whole = False
        self.skipped += len(self.gradients.bad)
        self.handle.loss = self._losses
        self.optimizer.step()
        self._losses = None
        self.done += 1
        self.whole = True

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

    @property
    def sent_bytes(self) -> float:
        """Bytes that a worker has sent so far, mean over the workers."""
        # After a stop, the round that was on the wire begins again with the next step.
        return max(self._sent, self.transport.sent_bytes)

    def state(self) -> dict[str, Any]:
        """What :meth:`load` needs to go on from here: tensors, numbers and names only."""
        self.handle.settle()
        state = self.optimizer.state_dict()
        return {
            "done": self.done,
            "skipped": self.skipped,
            "chunk": self.gradients.chunk,
            "params": {name: p.detach() for name, p in self.params.items()},
            "optimizer": state,
            "sent_bytes": self.sent_bytes,
            "closed_bytes": self.transport.closed if self._sent_again() else self.sent_bytes,
        }

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken, bit for bit."""
        self.optimizer.load_state_dict(state["optimizer"])
        for name, p in self.params.items():
            p.copy_(state["params"][name])
        self.done, self.skipped = state["done"], state["skipped"]
        self.transport.reopen(state["closed_bytes"])
        self._sent = state["sent_bytes"]
        self._losses = None

    def _sent_again(self) -> bool:
        """Whether the latest round is on the wire, so that it begins again after a stop."""
        plan, state = self.handle.plan, self.handle.state()
        latest = self.transport.latest
        if plan.late:
            return any(each.get("begun") == latest for each in state["states"])
        return plan.order is not Order.ATC and not state["combined"] and state["step"] == latest

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        algorithm = self.setup.algorithm
        return optimizers.build(algorithm.optimizer, model, lr=algorithm.lr, **algorithm.settings)


def how(setup: Setup) -> dict[str, Any]:
    """The arguments of ``decentralize()``, the topology as an object.

    Raises:
        SettingsError: rounds as an object for an algorithm that makes its own out of those with a name.
        TopologyError: the topology has no such number of workers.
    """
    algorithm, topology = setup.algorithm, setup.topology
    if isinstance(topology, str):
        given = algorithm.how(topology)
        return {**given, "topology": topologies.build(given["topology"], setup.workers)}
    if algorithm.topology != "{topology}":
        raise named_topology_needed(topology.name, algorithm.topology)
    if topology.workers != setup.workers:
        advice = "build the topology for the workers of this run"
        raise out_of_range("topology.workers", topology.workers, f"{setup.workers}, as workers", advice)
    return {**algorithm.how(topology.name), "topology": topology}


def _classes(problem: Problem, outputs: Any, targets: Tensor) -> bool:
    return problem.classifies and isinstance(outputs, Tensor) and outputs.shape[:-1] == targets.shape
