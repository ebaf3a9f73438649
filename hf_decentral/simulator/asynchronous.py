"""Workers that train in asynchronous pairs, each at a pace of its own, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hf_decentral import topology as topologies
from hf_decentral.cluster import Cluster, Members, Pairs, Rows, neighbours
from hf_decentral.errors.simulator import not_finite
from hf_decentral.simulator import per_worker, shards
from hf_decentral.simulator.evaluation import Evaluation, spread
from hf_decentral.simulator.gradients import Gradients, stacked
from hf_decentral.simulator.setup import Setup, optimizer_of
from hf_decentral.topology.base import Topology


class Asynchronous:
    """AD-PSGD in the place of :class:`~hf_decentral.simulator.lockstep.Simulation`.

    A step is as much work as one in lock step: ``W`` local steps, taken by whoever comes first.

    Args:
        setup: what is run; the topology tells who may meet whom.
        cluster: compute times and links.
        chunk: workers whose gradients are computed at once.

    Attributes:
        params: by name ``[W, *shape]``, views of one ``[W, P]``.
        done: steps taken.
        skipped: gradients that were left out, of all workers.
        whole: whether :meth:`state` may be taken.
    """

    def __init__(self, setup: Setup, cluster: Cluster, chunk: int | None = None) -> None:
        self.setup = setup
        problem, workers = setup.problem, setup.workers
        self.done = self.skipped = 0
        self.whole = True
        self.params = stacked(problem.model, workers)
        self._x = torch.cat([p.detach().flatten(1) for p in self.params.values()], 1)
        self._shapes = {name: p.shape[1:] for name, p in self.params.items()}
        for name, rows in self._parts(self._x).items():
            self.params[name].data = rows
        divided = shards.split(problem, workers, setup.skew, setup.seed)
        self._shards = divided
        self.gradients = Gradients(problem, self.params, divided, setup.batch, chunk)
        self._optimizer = per_worker.PerWorker(self.params, problem.model, optimizer_of(setup.algorithm))
        self.topology = _topology(setup)
        message = self._x[0].numel() * self._x.element_size()
        members = setup.members or Members(workers)
        self._pairs = Pairs(
            cluster,
            neighbours(self.topology),
            setup.seed,
            message,
            deaths=members.deaths,
            joins=members.joins,
        )
        self._rows = Rows(self._x, self._gradient, self._step)
        self._evaluation = Evaluation(problem)
        self._loss: float | None = None
        self._losses: list[float] = []

    def compute(self) -> float:
        """The mean loss of the workers on their next batches.

        Raises:
            DecentralizedError: numbers that are not finite.
        """
        if self._loss is None:
            samples = self._shards.batch(0, self.setup.batch)
            losses, _, bad = self.gradients.at(self._parts(self._x), samples)
            self._look(range(self.setup.workers), bad)
            self._loss = float(losses[losses.isfinite()].double().mean())
        return self._loss

    def step(self) -> None:
        """Let ``W`` local steps happen."""
        self.whole = False
        self._losses.clear()
        self._pairs.drive(self._rows, updates=self._pairs.updates + self.setup.workers)
        if self._losses:
            self._loss = sum(self._losses) / len(self._losses)
        self.done += 1
        self.whole = True

    @property
    def seconds(self) -> float:
        """Virtual time."""
        return self._pairs.seconds

    @property
    def sent_bytes(self) -> float:
        """Bytes that a worker has sent so far, mean over the workers."""
        return self._pairs.sent_bytes

    def evaluate(self) -> tuple[float, float | None]:
        """Validation loss of the mean of the workers, and its accuracy where targets are classes."""
        return self._evaluation({name: p.mean(0) for name, p in self._parts(self._present()).items()})

    def distance(self) -> float:
        """Consensus distance of those who take part."""
        return spread([self._present()])

    def pass_time(self, clock: Any) -> None:
        """Virtual time passes in :meth:`step`."""

    def state(self) -> dict[str, Any]:
        """What :meth:`load` needs to go on from here."""
        return {
            "done": self.done,
            "skipped": self.skipped,
            "chunk": self.gradients.chunk,
            "x": self._x,
            "copies": self._rows.copies,
            "optimizer": self._optimizer.state_dict(),
            "pairs": self._pairs.state(),
            "loss": self._loss,
        }

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken, bit for bit."""
        self._x.copy_(state["x"])
        self._rows.copies.copy_(state["copies"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._pairs.load(state["pairs"])
        self.done, self.skipped, self._loss = state["done"], state["skipped"], state["loss"]

    def _present(self) -> Tensor:
        """The parameters of those who take part."""
        absent = self._pairs.absent
        return self._x[[w for w in range(self.setup.workers) if w not in absent]] if absent else self._x

    def _parts(self, x: Tensor) -> dict[str, Tensor]:
        """Rows ``[K, P]`` as parameters ``[K, *shape]``, views of it."""
        found, at = {}, 0
        for name, shape in self._shapes.items():
            found[name] = x[:, at : at + shape.numel()].view(len(x), *shape)
            at += shape.numel()
        return found

    def _gradient(self, x: Tensor, workers: Sequence[int], steps: Sequence[int]) -> Tensor:
        batches = {step: self._shards.batch(step, self.setup.batch) for step in set(steps)}
        samples = torch.stack([batches[step][w] for w, step in zip(workers, steps, strict=True)])
        losses, grads, bad = self.gradients.at(self._parts(x), samples)
        self._look(workers, bad)
        self._losses += losses[losses.isfinite()].tolist()
        return torch.cat([grads[name].flatten(1) for name in self._shapes], 1)

    def _look(self, workers: Sequence[int], bad: list[int]) -> None:
        """Name those whose numbers are not finite, or count them where they are left out."""
        if bad and not self.setup.skip:
            raise not_finite([workers[k] for k in bad], self.setup.workers, self.done)
        self.skipped += len(bad)

    def _step(self, worker: int, gradient: Tensor) -> None:
        for name, part in self._parts(gradient.unsqueeze(0)).items():
            grad = self.params[name].grad
            if grad is not None:
                grad[worker].copy_(part[0])
        self._optimizer.step_row(worker)


def _topology(setup: Setup) -> Topology:
    if isinstance(setup.topology, Topology):
        return setup.topology
    return topologies.build(setup.algorithm.rounds(setup.topology), setup.workers)
