"""What determines a simulated run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn
from torch.optim import Optimizer

from hf_decentral.algorithms import Algorithm
from hf_decentral.cluster import Members
from hf_decentral.integrations import optimizers
from hf_decentral.simulator.base import Problem
from hf_decentral.topology.base import Topology


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
        members: who takes part when, in steps, or in seconds where there is no global step; None: all do.
    """

    problem: Problem
    algorithm: Algorithm
    topology: str | Topology
    workers: int
    batch: int
    seed: int = 0
    skew: float | None = None
    skip: bool = False
    members: Members | None = field(default=None)


def optimizer_of(algorithm: Algorithm) -> Callable[[nn.Module], Optimizer]:
    """Makes the local optimizer of an algorithm, for a model."""

    def make(model: nn.Module) -> Optimizer:
        return optimizers.build(algorithm.optimizer, model, lr=algorithm.lr, **algorithm.settings)

    return make
