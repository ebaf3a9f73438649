"""The mean over all workers: how far they are from it, and a model that holds it for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from hf_decentral.optim.agreement import rows_of
from hf_decentral.optim.registry import alive
from hf_decentral.transport import Transport
from hf_decentral.transport.combine import HALF


class Owner(Protocol):
    """Who exchanges a part of the model's parameters."""

    transport: Transport

    def flats(self) -> list[Tensor]:
        """The buckets ``[W, P]``, with nothing on the wire."""

    def away(self) -> AbstractContextManager[None]:
        """While the parameters are not the worker's own, no step may be taken."""


def distance(flats: Sequence[Tensor], transport: Transport) -> float:
    """``sqrt(mean_i ||x_i - mean||^2)`` over the workers. Collective.

    Args:
        flats: the buckets of this process, ``[W, P]`` each.
        transport: how to reach the others.
    """
    if not flats:
        return 0.0
    total = 0.0
    for flat in flats:
        own = flat.float() if flat.dtype in HALF else flat
        mean = transport.average_(own.clone())
        total += float((mean.sub_(own).abs().square().sum(1, dtype=torch.float64)).mean())
    squared = torch.full((len(transport.local), 1), total, dtype=torch.float64, device=flats[0].device)
    return float(transport.average_(squared)[0].sqrt())


def average_(tensor: Tensor, transport: Transport) -> None:
    """Put the mean over the workers in the place of a tensor that is in no bucket. Collective."""
    rows = rows_of(tensor, transport)
    rows.copy_(transport.average_(rows.clone(memory_format=torch.contiguous_format)))


def unite(flats: Sequence[Tensor], model: nn.Module, transport: Transport) -> None:
    """Put the mean over the workers into the buckets and a model's float buffers. Collective."""
    for flat in flats:
        transport.average_(flat)
    for buffer in float_buffers(model) if len(transport.local) == 1 else ():
        average_(buffer, transport)


@contextmanager
def swapped(owners: Sequence[Owner], model: nn.Module) -> Iterator[None]:
    """Put the mean in the place of the workers' parameters and float buffers, and take it out again."""
    transport = owners[0].transport
    with ExitStack() as stack:
        for owner in owners:
            stack.enter_context(owner.away())
            for flat in owner.flats():
                stack.enter_context(_mean_in_place(flat, owner.transport))
        for buffer in float_buffers(model) if len(transport.local) == 1 else ():
            stack.enter_context(_mean_in_place(buffer.unsqueeze(0), transport))
        yield


@contextmanager
def _mean_in_place(x: Tensor, transport: Transport) -> Iterator[None]:
    with torch.no_grad():
        own = x.clone()
        try:
            mean = own.clone(memory_format=torch.contiguous_format)
            x.copy_(transport.average_(mean))
            del mean
            yield
        finally:
            x.copy_(own)


@contextmanager
def averaged(model: nn.Module) -> Iterator[nn.Module]:
    """A context in which a model holds the consensus: the mean of all workers. Collective.

    Every optimizer that trains a part of the model takes part. Trainable parameters and float buffers
    are averaged, other buffers are left alone. At the end every worker has its own back, bit for bit; what is
    written inside is lost.
    """
    params = {id(p) for p in model.parameters()}
    owners = [handle for handle in alive() if handle.owns(params)]
    if not owners:
        yield model
        return
    with swapped(owners, model):
        yield model


def float_buffers(model: nn.Module) -> list[Tensor]:
    """The floating-point buffers of a model, as they are now: a module may put new tensors in their place."""
    return [b for b in model.buffers() if b.is_floating_point() or b.is_complex()]
