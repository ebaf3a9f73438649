"""All workers of a run in one process, step by step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hf_decentral import topology as topologies
from hf_decentral.cluster import Clock, givers, neighbours, welcome_
from hf_decentral.errors import out_of_range
from hf_decentral.errors.simulator import cannot_join, named_topology_needed, not_finite
from hf_decentral.optim import decentralize, gossip
from hf_decentral.optim.plan import Order, Plan, make_plan
from hf_decentral.rounds import Round
from hf_decentral.simulator import footprint, per_worker, shards
from hf_decentral.simulator.counted import Counted
from hf_decentral.simulator.evaluation import Evaluation, spread
from hf_decentral.simulator.gradients import Gradients, stacked
from hf_decentral.simulator.setup import Setup, optimizer_of
from hf_decentral.topology.base import Topology

BUCKET_MB = 4.0


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
        problem, optimizer = setup.problem, optimizer_of(setup.algorithm)
        arguments = how(setup)
        if setup.members is not None:
            self._near = neighbours(arguments["topology"])
            arguments["topology"] = setup.members.present(arguments["topology"])
        plan = plan_of(arguments)
        if setup.members is not None and setup.members.joins and not plan.method.joins:
            raise cannot_join(plan.averaging)
        footprint.check(problem.model, optimizer, plan)
        self.done = self.skipped = 0
        self.params = stacked(problem.model, setup.workers)
        self.transport = Counted(setup.workers)
        divided = shards.split(problem, setup.workers, setup.skew, setup.seed)
        self.gradients = Gradients(problem, self.params, divided, setup.batch, chunk)
        self.optimizer = decentralize(
            per_worker.over(self.params, problem.model, optimizer),
            model=nn.Module(),  # nobody calls it: "cta" wants one, and combines in `compute`
            transport=self.transport,
            bucket_mb=BUCKET_MB,
            guard=False,  # it would drop the gradients of all workers; `compute` looks at each
            **arguments,
        )
        self.handle = gossip(self.optimizer)
        self.transport.kept = self.handle.plan.late_by + 1
        self.whole = True
        self._sent = 0.0
        self._evaluation = Evaluation(problem)
        self._losses: Tensor | None = None

    def compute(self) -> float:
        """Compute the gradients of the next step; returns the mean loss of the workers on their batches.

        Raises:
            DecentralizedError: numbers that are not finite, with the workers that had them.
        """
        if self._losses is None:
            self._welcome()
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

    @property
    def topology(self) -> Topology:
        """Who averages with whom."""
        return self.handle.topology

    @property
    def absent(self) -> frozenset[int]:
        """The workers that take no part in the next step."""
        members = self.setup.members
        return frozenset() if members is None else members.absent(self.done)

    def _present(self) -> list[int] | slice:
        absent = self.absent
        return [w for w in range(self.setup.workers) if w not in absent] if absent else slice(None)

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float | None]:
        """Validation loss of the mean of the workers, and its accuracy where targets are classes."""
        present = self._present()
        return self._evaluation({name: p[present].mean(0) for name, p in self.params.items()})

    @torch.no_grad()
    def distance(self) -> float:
        """Consensus distance of those who take part."""
        if not self.absent:
            return self.handle.distance()
        return spread(x[self._present()] for x in self.handle.flats())

    @property
    def seconds(self) -> None:
        """A run in lock step has no time of its own; see :meth:`pass_time`."""

    def pass_time(self, clock: Clock) -> None:
        """Let the virtual time of the latest step pass: that of the round whose average came in it."""
        begun = self.done - 1 - self.handle.plan.late_by
        round, bytes_, coded = self.transport.round_of(begun)
        members = self.setup.members
        absent = frozenset() if members is None else members.absent(self.done - 1)
        idle = Round.identity(self.handle.workers)
        clock.advance(round or idle, self.handle.plan.order.value, bytes_, coded, absent)

    def _welcome(self) -> None:
        """Let those who join now begin with the mean of their neighbours."""
        members = self.setup.members
        for worker in () if members is None else members.joining(self.done):
            self.handle.flush()  # what is on the wire would be lost
            near = givers(worker, self._near, self.absent)
            for x in self.handle.flats():
                welcome_(x, worker, near)

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


def plan_of(arguments: dict[str, Any]) -> Plan:
    """What ``decentralize()`` makes of its arguments, the topology an object.

    Raises:
        SettingsError, TopologyError: they cannot be meant.
    """
    topology, order, averaging, delay = (arguments[k] for k in ("topology", "order", "averaging", "delay"))
    return make_plan(topology, order, averaging, topology.workers, None, BUCKET_MB, delay)
