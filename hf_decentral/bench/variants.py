"""Ways to keep workers together: one row a variant.

A name may have an argument behind a colon (``ddp:4mb``). What is in no row is one of ours: a topology, by
name or as an expression, with the averaging method and other switches behind plus signs (``aer+bf16``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hf_decentral import averaging, topology
from hf_decentral.bench import rivals
from hf_decentral.errors import unknown_name
from hf_decentral.errors.bench import bad_argument
from hf_decentral.optim import Gossip, decentralize, gossip

SWITCHES: dict[str, dict[str, Any]] = {
    "early": {"early": True},
    "whole": {"bucket_mb": 1e6},
}
"""Options of ``decentralize`` that a plus sign switches on, by name: one line each."""

DEFAULT_BUCKET = "default"
BUCKETS = (DEFAULT_BUCKET, "1mb", "4mb", "10mb")
"""Sizes among which ``ddp_tuned`` searches; the default is 25 MiB and a first one of 1 MiB."""


class Stepper(Protocol):
    """What the loop needs of an optimizer."""

    def step(self) -> Any:
        """Take a step."""

    def zero_grad(self) -> Any:
        """Forget the gradients."""


def _nothing() -> None:
    return None


@dataclass
class Loop:
    """A model that trains, prepared for a variant.

    Attributes:
        called: what is called in the forward pass.
        optimizer: steps after the backward pass; None where the variant does so by itself.
        settle: waits until nothing of it is on the wire.
        handle: counts bytes and seconds, where the variant is one of ours.
    """

    called: nn.Module
    optimizer: Stepper | None
    settle: Callable[[], object] = _nothing
    handle: Gossip | None = None


@dataclass(frozen=True)
class Setup:
    """What a variant is made of.

    Attributes:
        model: on its device.
        optimizer: makes the local optimizer of some parameters.
        argument: what stood behind the colon, else an empty text.
        workers_per_host: workers that share a host.
        workers: all of them.
        apart: for ours, as if every worker had a host of its own.
    """

    model: nn.Module
    optimizer: Callable[[Any], torch.optim.Optimizer]
    argument: str
    workers_per_host: int
    workers: int
    apart: bool = False

    def local(self) -> torch.optim.Optimizer:
        """The local optimizer of the whole model."""
        return self.optimizer(self.model.parameters())


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        make: prepares a model.
        argument: what may stand behind the colon, as a regular expression.
        expected: the same in words, for who typed something else.
    """

    make: Callable[[Setup], Loop]
    argument: str = ""
    expected: str = "no argument"


def _none(setup: Setup) -> Loop:
    return Loop(setup.model, setup.local())


def _ddp(setup: Setup) -> Loop:
    return Loop(_wrapped(setup, setup.argument), setup.local())


def _wrapped(setup: Setup, bucket: str = "") -> DistributedDataParallel:
    size = None if bucket in ("", DEFAULT_BUCKET) else float(bucket.removesuffix("mb"))
    return DistributedDataParallel(setup.model, bucket_cap_mb=size)


def _hooked(name: str) -> Callable[[Setup], Loop]:
    """DDP whose gradients travel compressed, by a hook of torch."""

    def make(setup: Setup) -> Loop:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        hook = getattr(default_hooks, name)
        wrapped = _wrapped(setup)
        # By its name DDP refuses the one for bf16 without NCCL, though gloo can do it.
        wrapped.register_comm_hook(None, lambda state, bucket: hook(state, bucket))
        return Loop(wrapped, setup.local())

    return make


def _powersgd(setup: Setup) -> Loop:
    """PowerSGD (Vogels et al. 2019, arXiv 1905.13727); the argument is the rank, 1 if left out."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    wrapped = _wrapped(setup)
    # Its first steps are an ordinary All-Reduce; 2 is the fewest that it takes.
    state = powerSGD_hook.PowerSGDState(None, int(setup.argument or 1), start_powerSGD_iter=2)
    wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return Loop(wrapped, setup.local())


def _ours(setup: Setup) -> Loop:
    """Every option of ours goes through here."""
    name, method, options = _parts(setup.argument)
    optimizer = setup.local()
    hosts = list(range(setup.workers)) if setup.apart else None
    decentralize(optimizer, name, model=setup.model, averaging=method, hosts=hosts, **options)
    handle = gossip(optimizer)
    return Loop(setup.model, optimizer, handle.settle, handle)


TABLE: dict[str, Entry] = {
    "none": Entry(_none),
    "ddp": Entry(_ddp, r"\d+(\.\d+)?mb", "the size of a bucket in MiB, such as ddp:4mb"),
    "ddp_tuned": Entry(_ddp),
    "ddp_fp16": Entry(_hooked("fp16_compress_hook")),
    "ddp_bf16": Entry(_hooked("bf16_compress_hook")),
    "ddp_powersgd": Entry(_powersgd, r"[1-9]\d*", "a rank, such as ddp_powersgd:4"),
    "post_local_sgd": Entry(
        lambda setup: Loop(
            *rivals.post_local_sgd(
                _wrapped(setup), setup.local(), int(setup.argument or 4), setup.workers_per_host
            )
        ),
        r"[1-9]\d*",
        "the number of steps between two averages, such as post_local_sgd:4",
    ),
    "decent_dp": Entry(
        lambda setup: Loop(
            *rivals.decent_dp(setup.model, setup.optimizer, setup.argument, setup.workers_per_host)
        ),
        "|".join(rivals.DECENT_TOPOLOGIES),
        f"a topology that it knows: {', '.join(rivals.DECENT_TOPOLOGIES)}",
    ),
}


@dataclass(frozen=True)
class Variant:
    """A name that was understood.

    Attributes:
        name: as it was typed.
        entry: its row.
        argument: what the row is to be told.
    """

    name: str
    entry: Entry
    argument: str = ""

    @property
    def foreign(self) -> bool:
        """Whether it is code of others, which may fail where ours must not."""
        return self.entry.make is not _ours


def read(name: str) -> Variant:
    """The variant of that name.

    Raises:
        SettingsError: no variant, topology or averaging method has that name, or its argument is none.
    """
    family, colon, argument = name.partition(":")
    if family in TABLE:
        entry = TABLE[family]
        needed = family == "decent_dp"
        if (colon or needed) and not (entry.argument and re.fullmatch(entry.argument, argument)):
            raise bad_argument(name, entry.expected)
        return Variant(name, entry, argument)
    known = _parts(name)[0]
    if known not in topology.names() and "(" not in known:
        raise unknown_name("variant", known, [*TABLE, *topology.names()])
    return Variant(name, Entry(_ours), name)


def check(names: Sequence[str], workers: int) -> list[Variant]:
    """Read all names, and see that these workers can form the topologies among them.

    Raises:
        SettingsError, TopologyError: one of them cannot be meant.
    """
    found = [read(name) for name in names]
    for variant in found:
        if variant.entry.make is _ours:
            topology.build(_parts(variant.name)[0], workers)
    return found


def _parts(name: str) -> tuple[str, str, dict[str, Any]]:
    """Topology, averaging method and options of one of ours."""
    who, *switches = [part.strip() for part in name.split("+")]
    options: dict[str, Any] = {}
    methods = [switch for switch in switches if switch not in SWITCHES]
    for switch in switches:
        options.update(SWITCHES.get(switch, {}))
    for method in methods:
        averaging.build(method)
    if len(methods) > 1:
        raise bad_argument(name, "one averaging method at most")
    return who, methods[0] if methods else "plain", options
