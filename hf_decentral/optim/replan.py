"""Another plan for an optimizer that gossips: what is on the wire arrives, and all go on from the mean.

Two uses: a run that chooses its topology after its first steps, and a checkpoint that tells what was chosen.
"""

from __future__ import annotations

from typing import Any

import torch

from hf_decentral.optim.agreement import Rows, together
from hf_decentral.optim.attach import gossip
from hf_decentral.optim.handle import Gossip
from hf_decentral.optim.plan import Plan, make_plan
from hf_decentral.topology.base import Hosts, Topology
from hf_decentral.transport import find_hosts


def replan(
    optimizer: Any, topology: str | Topology, averaging: str | None = None, *, hosts: Hosts = None
) -> Gossip:
    """Let a decentralized optimizer average on another topology from the next step on. Collective.

    What is on the wire arrives and is averaged, except for exchanges that travel for several steps, which are
    dropped. Every worker then gets the mean of all parameters, so that a method that remembers what the
    neighbours know can begin to; it forgets what it knew. Moments, order, delay and the size of the buckets
    stay, and the steps are counted on: the first round is that of step ``gossip(optimizer).step``.

    Args:
        optimizer: a decentralized optimizer, or its handle; all workers are between the same two steps.
        topology: a name or a :class:`Topology`.
        averaging: what is sent and how it is combined; None: as before.
        hosts: the number of each worker's host; None: found.

    Returns:
        The handle.

    Raises:
        SettingsError, TopologyError: it cannot be meant, or does not go with the order or the delay.
        ParameterError: the optimizer does not gossip, or a parameter was written to during an exchange.
        MismatchError: the workers disagree, or another one met such an error; nothing has changed then.
        PeerLost: a neighbour sent nothing within the deadline.
    """
    return _change(optimizer, topology, averaging, hosts, unite=True)


def restore(
    optimizer: Any, topology: str | Topology, averaging: str | None = None, *, hosts: Hosts = None
) -> Gossip:
    """The same for those who load parameters and what the method remembers next: no mean is taken."""
    return _change(optimizer, topology, averaging, hosts, unite=False)


def _change(
    optimizer: Any, topology: str | Topology, averaging: str | None, hosts: Hosts, unite: bool
) -> Gossip:
    handle = optimizer if isinstance(optimizer, Gossip) else gossip(optimizer)
    wire = handle.transport
    where = hosts or find_hosts(wire)

    def make() -> Plan:
        old = handle.plan
        method = averaging or old.averaging
        plan = make_plan(topology, old.order.value, method, wire.workers, where, old.bucket_mb, old.delay)
        plan.check_optimizer(handle.rates.optimizer)
        if unite:
            with torch.inference_mode(False), torch.no_grad():
                handle.flush()
        return plan

    def rows(plan: Plan) -> Rows:
        # Workers that load are not yet at one step.
        return (*plan.rows, *((("the step at which it begins", str(handle.step)),) if unite else ()))

    plan = together(wire, make, rows)
    wire.prepare(plan.topology)
    handle.discard()
    with torch.inference_mode(False), torch.no_grad():
        if unite and handle.workers > 1:
            for flat in handle.flats():
                wire.average_(flat)
        handle.follow(plan)
    return handle
