"""How an optimizer gossips, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from math import inf

from torch.optim import Optimizer

from hf_decentral import averaging as methods
from hf_decentral import topology as topologies
from hf_decentral.averaging import Averaging
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.averaging import (
    must_be_mutual,
    must_be_whole,
    must_repeat,
    no_complex,
    too_many_in_flight,
    wrong_delay,
    wrong_order,
)
from hf_decentral.errors.corrections import not_delayed
from hf_decentral.errors.topology import must_push
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology


class Order(Enum):
    """Where the average stands relative to the local step."""

    AWC = "awc"  # adapt while combine: the exchange travels behind the forward and backward
    ATC = "atc"  # adapt then combine: x <- M (x + u)
    CTA = "cta"  # combine then adapt: y = M x, gradient at y


@dataclass(frozen=True)
class Plan:
    """How an optimizer gossips.

    Attributes:
        topology: who averages with whom.
        averaging: name of the averaging method, as it stands in checkpoints.
        method: that method.
        order: where the average stands relative to the local step.
        bucket_mb: about how much of a worker's parameters is exchanged as one, in megabytes.
        delay: local steps from the beginning of an exchange to its landing; None: 1 in adapt-while-combine,
            else 0.
    """

    topology: Topology
    averaging: str
    method: Averaging
    order: Order
    bucket_mb: float = 4.0
    delay: int | None = None

    @property
    def late(self) -> bool:
        """Whether parameters move on while an exchange travels, so that a copy of them does."""
        return self.late_by > 0 or self.method.land is not None

    @property
    def late_by(self) -> int:
        """Local steps that an exchange travels for beyond what the order needs."""
        least = 1 if self.order is Order.AWC else 0
        return 0 if self.delay is None else self.delay - least

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """What must be equal on all workers, in words."""
        return (
            ("the topology", f"{self.topology.name!r} with {self.topology.workers} workers"),
            ("its rounds", str(hash(self.topology.rounds()))),
            ("its hosts", str(self.topology.hosts)),
            ("the order", repr(self.order.value)),
            ("the averaging method", repr(self.averaging)),
            ("bucket_mb", repr(self.bucket_mb)),
            ("the delay", repr(self.delay)),
        )

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """See that the method can work beside an optimizer.

        Raises:
            SettingsError: it cannot.
        """
        if self.method.check_optimizer is not None:
            self.method.check_optimizer(optimizer)
        params = (p for group in optimizer.param_groups for p in group["params"])
        if self.method.real and any(p.is_complex() for p in params):
            raise no_complex()


def make_plan(
    topology: str | Topology,
    order: str,
    averaging: str,
    workers: int,
    hosts: Hosts,
    bucket_mb: float,
    delay: int | None = None,
) -> Plan:
    """The plan that names and numbers stand for.

    Raises:
        SettingsError, TopologyError: one of them cannot be meant.
    """
    orders = [o.value for o in Order]
    if order not in orders:
        raise unknown_name("order", order, orders)
    if isinstance(topology, str):
        topology = topologies.build(topology, workers, hosts)
    if topology.workers != workers:
        advice = "build the topology for the workers of this run"
        raise out_of_range("topology.workers", topology.workers, f"{workers}, the workers here", advice)
    method = methods.build(str(averaging))
    if method.repeats and topology.repeated() is None:
        raise must_repeat(averaging, topology.name)
    if topology.push and not method.push:
        raise must_push(averaging, topology.name)
    if method.mutual and not all(round.mutual for round in _talks(topology)):
        raise must_be_mutual(averaging, topology.name)
    if not isinstance(bucket_mb, (int, float)) or not 0 < bucket_mb < inf:
        raise out_of_range("bucket_mb", bucket_mb, "megabytes, more than 0", "leave it out for 4")
    if order not in method.orders:
        raise wrong_order(averaging, order, method.orders)
    if method.whole and any(r.groups != (tuple(range(workers)),) for r in _talks(topology)) and workers > 1:
        raise must_be_whole(averaging, topology.name)
    if method.check_topology is not None and workers > 1:
        method.check_topology(topology)
    plan = Plan(topology, averaging, method, Order(order), bucket_mb, delay)
    _check_delay(plan)
    return plan


def _talks(topology: Topology) -> list[Round]:
    """The rounds, as far as they can be listed, in which anybody talks."""
    return [round for round in topology.repeated() or topology.rounds() if not round.idle]


def _check_delay(plan: Plan) -> None:
    """One exchange at a time: the next may begin where the one before has landed."""
    if plan.delay is None:
        return
    least = 1 if plan.order is Order.AWC else 0
    if not isinstance(plan.delay, int) or plan.delay < least or (plan.order is Order.CTA and plan.delay):
        raise wrong_delay(plan.delay, plan.order.value, least)
    if not plan.late_by:
        return
    if not plan.method.delays:
        raise not_delayed(plan.averaging, plan.delay, least)
    topology = plan.topology
    for each in (topology, *topology.phases):
        rounds = each.rounds(2 * (each.period or 64))
        begun = [step for step, round in enumerate(rounds) if not round.idle]
        closest = min((b - a for a, b in pairwise(begun)), default=plan.late_by + 1)
        if closest <= plan.late_by or topology.least:
            raise too_many_in_flight(topology.name, plan.delay)
