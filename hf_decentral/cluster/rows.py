"""Replicas of an asynchronous run as the rows of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Gradient = Callable[[Tensor, Sequence[int], Sequence[int]], Tensor]
"""``gradient(x, workers, steps)``: the gradients ``[K, P]`` of ``K`` workers at ``x``, ``[K, P]``."""
Step = Callable[[int, Tensor], None]
"""``step(worker, gradient)``: the local step of a worker with a gradient ``[P]``."""


class Rows:
    """What :class:`~hf_decentral.cluster.pairs.Pairs` drives, for any gradient and any local step.

    Args:
        x: the parameters of all workers, ``[W, P]``, changed in place; row ``i`` is worker ``i``'s.
        gradient: gives the gradients of some workers at once.
        step: takes the local step of one worker, by writing to its row of ``x``.

    Attributes:
        x: as above.
        copies: ``[W, P]``, what each worker read, until its gradient takes that place. A checkpoint holds
            both tensors, beside the state of the driver.
    """

    def __init__(self, x: Tensor, gradient: Gradient, step: Step) -> None:
        self.x = x
        self.copies = x.detach().clone()
        self._gradient = gradient
        self._step = step

    @torch.no_grad()
    def read(self, worker: int) -> None:
        """See :meth:`Replicas.read`."""
        self.copies[worker].copy_(self.x[worker])

    def gradients(self, workers: Sequence[int], steps: Sequence[int]) -> None:
        """See :meth:`Replicas.gradients`."""
        if len(workers) == len(self.copies):
            self.copies.copy_(self._gradient(self.copies, workers, steps))
        else:
            index = torch.tensor(workers, device=self.copies.device)
            self.copies[index] = self._gradient(self.copies[index], workers, steps)

    @torch.no_grad()
    def average(self, i: int, j: int) -> None:
        """See :meth:`Replicas.average`."""
        self.x[i].add_(self.x[j]).mul_(0.5)
        self.x[j].copy_(self.x[i])

    def step(self, worker: int) -> None:
        """See :meth:`Replicas.step`."""
        self._step(worker, self.copies[worker])

    @torch.no_grad()
    def adopt(self, worker: int, giver: int) -> None:
        """See :meth:`Replicas.adopt`."""
        self.x[worker].copy_(self.x[giver])
