"""How an optimizer gossips, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from hf_decentral import averaging as methods
from hf_decentral import topology as topologies
from hf_decentral.averaging import Averaging
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.averaging import must_repeat
from hf_decentral.errors.topology import must_push
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
    """

    topology: Topology
    averaging: str
    method: Averaging
    order: Order
    bucket_mb: float = 4.0


def make_plan(
    topology: str | Topology, order: str, averaging: str, workers: int, hosts: Hosts, bucket_mb: float
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
    if topology.push:
        raise must_push(averaging, topology.name)
    if not isinstance(bucket_mb, (int, float)) or not 0 < bucket_mb < inf:
        raise out_of_range("bucket_mb", bucket_mb, "megabytes, more than 0", "leave it out for 4")
    return Plan(topology, averaging, method, Order(order), bucket_mb)
