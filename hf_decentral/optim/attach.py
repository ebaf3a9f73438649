"""The one call that makes any torch optimizer gossip."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from hf_decentral.errors import DecentralizedError, out_of_range
from hf_decentral.errors.parameters import already_gossiping, model_needed, not_an_optimizer, not_gossiping
from hf_decentral.errors.peers import not_initialized
from hf_decentral.optim.agreement import Rows, describe, make_equal, together
from hf_decentral.optim.bucket import check
from hf_decentral.optim.handle import Gossip
from hf_decentral.optim.hooks import Hooks, check_early
from hf_decentral.optim.local import Rates
from hf_decentral.optim.plan import Order, Plan, make_plan
from hf_decentral.optim.registry import alive
from hf_decentral.topology.base import Hosts, Topology
from hf_decentral.transport import Memory, Processes, Transport, find_hosts

logger = logging.getLogger(__name__)
Opt = TypeVar("Opt", bound=Optimizer)
_HANDLE = "_hf_decentral_gossip"


def decentralize(
    optimizer: Opt,
    topology: str | Topology = "aer",
    *,
    model: nn.Module | None = None,
    order: str = "awc",
    averaging: str = "plain",
    hosts: Hosts = None,
    transport: Transport | None = None,
    comm_timeout: float = 600.0,
    guard: bool | None = None,
    bucket_mb: float = 4.0,
    early: bool = False,
    delay: int | None = None,
) -> Opt:
    """Make an optimizer average its parameters with neighbours, while the model computes. Collective.

    The same object comes back. Its ``step()`` waits for the exchange begun one step ago, puts the weighted
    mean of the neighbours in the place of the parameters, takes its own step with the gradient taken before,
    and begins to send: ``x_i(t+1) = sum_j w_ij x_j(t) + u_i(g_i(x_i(t)))`` (From Promise to Practice, arXiv
    2410.11998). All workers then have worker 0's parameters and buffers.

    Args:
        optimizer: any ``torch.optim.Optimizer`` that takes no closure.
        topology: a name (``hf-decentral topology list``) or a :class:`Topology`.
        model: the model, for its buffers to be made equal, for its names in messages, and for ``"cta"``.
        order: ``"awc"`` as above; ``"atc"``: the mean after the local step; ``"cta"``: the mean before the
            forward pass. These two wait for the network in every step.
        averaging: what is sent and how it is combined (``hf_decentral.averaging.names()``).
        hosts: the number of each worker's host; None: found from the launcher and the machines' names.
        transport: None: torch.distributed, or nothing where there is one worker.
        comm_timeout: longest wait for a neighbour, in seconds.
        bucket_mb: megabytes exchanged as one; each is sent when its own local step is done.
        delay: local steps that an exchange travels; None: 1 with ``"awc"``, else 0. Beyond, a copy travels.
        early: step and send a bucket inside backward; one backward a step, no clipping and no scaler.
        guard: drop a local update whose gradient is not finite; None: on the CPU only.

    Raises:
        SettingsError, TopologyError, ParameterError: something that cannot be meant, or cannot gossip.
        MismatchError, LaunchError: workers that disagree (told on each), or were not joined.
    """
    _refuse(optimizer, comm_timeout)
    wire = transport or _default_transport(comm_timeout)
    where = hosts or find_hosts(wire)
    plan = partial(make_plan, topology, order, averaging, wire.workers, where, bucket_mb, delay)
    make = partial(_handle, optimizer, model, wire, early, plan)
    handle = together(wire, make, lambda made: _settings(made, optimizer, model))
    _start(handle, optimizer, model)
    Hooks(optimizer, handle, guard, early)
    return optimizer


def gossip(optimizer: Any) -> Gossip:
    """The handle of a decentralized optimizer, also through a wrapper that keeps it as ``.optimizer``.

    Raises:
        ParameterError: the optimizer does not gossip.
    """
    inner = optimizer
    while inner is not None:
        handle = getattr(inner, _HANDLE, None)
        if isinstance(handle, Gossip):
            return handle
        inner = getattr(inner, "optimizer", None)
    raise not_gossiping(optimizer)


def _refuse(optimizer: object, comm_timeout: float) -> None:
    """What every worker sees by itself, before it could wait for another."""
    if not isinstance(optimizer, Optimizer) or not getattr(type(optimizer).step, "hooked", False):
        raise not_an_optimizer(optimizer)
    if hasattr(optimizer, _HANDLE):
        raise already_gossiping(optimizer)
    if not comm_timeout > 0:
        raise out_of_range("comm_timeout", comm_timeout, "seconds, more than 0", "leave it out for 600")


def _default_transport(comm_timeout: float) -> Transport:
    if dist.is_available() and dist.is_initialized():
        if dist.get_world_size() > 1:
            return Processes(comm_timeout)
        return Memory(1)
    world = os.environ.get("WORLD_SIZE", "1")
    if world not in ("", "1"):
        raise not_initialized(world)
    return Memory(1)


def _handle(
    optimizer: Optimizer, model: nn.Module | None, transport: Transport, early: bool, make: Callable[[], Plan]
) -> Gossip:
    plan = make()
    if plan.order is Order.CTA and model is None:
        raise model_needed(plan.order.value)
    names = {id(p): n for n, p in model.named_parameters()} if model is not None else {}

    def name(p: Tensor) -> str:
        if id(p) in names:
            return f"parameter {names[id(p)]!r}"
        for g, group in enumerate(optimizer.param_groups):
            for k, other in enumerate(group["params"]):
                if other is p:
                    return f"parameter {k} of group {g}"
        return "a parameter"

    check(_all(optimizer), len(transport.local) if len(transport.local) > 1 else 0, name)
    plan.check_optimizer(optimizer)
    handle = Gossip(lambda: _trainable(optimizer), Rates(optimizer), name, transport, plan)
    if early and transport.workers > 1:
        check_early(optimizer, handle)
    return handle


def _all(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _trainable(optimizer: Optimizer) -> list[Tensor]:
    return [p for p in _all(optimizer) if p.requires_grad]


def _settings(handle: Gossip, optimizer: Optimizer, model: nn.Module | None) -> Rows:
    return (
        *handle.plan.rows,
        ("the optimizer", repr(type(optimizer).__name__)),
        *describe(_trainable(optimizer), handle._name),
        *(
            (f"the shape of {name!r}", f"{list(t.shape)} of {t.dtype}")
            for name, t in _others(optimizer, model).items()
        ),
    )


def _others(optimizer: Optimizer, model: nn.Module | None) -> dict[str, Tensor]:
    """What is made equal at the beginning and never exchanged: frozen parameters and buffers, by name."""
    trained = {id(p) for p in _trainable(optimizer)}
    frozen = [p for p in _all(optimizer) if id(p) not in trained]
    named = {f"frozen parameter {k}": p for k, p in enumerate(frozen)}
    if model is not None:
        known = {id(p) for p in frozen} | trained
        named.update({n: p for n, p in model.named_parameters() if id(p) not in known})
        named.update(model.named_buffers())
    return named


@torch.no_grad()
def _start(handle: Gossip, optimizer: Optimizer, model: nn.Module | None) -> None:
    """Everybody begins with worker 0's numbers; the model and the optimizer know of the handle."""
    handle.transport.prepare(handle.topology)
    params = _all(optimizer)
    own = {id(p) for p in params}
    for other in alive():
        if other is not handle and other.owns(own):
            other.retire()
    if handle.workers > 1:
        make_equal(handle.transport, _trainable(optimizer))
        handle.know(params)
        if len(handle.transport.local) == 1:
            make_equal(handle.transport, list(_others(optimizer, model).values()))
    if model is not None and handle.plan.order is Order.CTA:
        combine = torch.no_grad()(handle.combine)
        model.register_forward_pre_hook(lambda module, inputs: combine())
    setattr(optimizer, _HANDLE, handle)


def _drain() -> None:
    """At the end of a process: let the last round arrive, and tell the others that this was on purpose."""
    if getattr(sys, "last_type", None) is not None or not dist.is_initialized():
        return  # an error ended this process: the others shall hear of it, not of an orderly end
    for handle in alive():
        if handle.flights.lost is not None:
            continue
        try:
            handle.settle()
            handle.transport.close(handle.step)
        except DecentralizedError as error:
            logger.warning("the last exchange did not arrive: %s", error)


atexit.register(_drain)
