"""Gossip under Accelerate: one plugin, attached to one Accelerator.

accelerator = Accelerator()
plugin = DecentralizedPlugin(topology="aer").attach(accelerator)
optimizer = plugin.optimizer(model, lr=6e-4, weight_decay=0.1)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
# the loop is the user's own, unchanged
with plugin.averaged(model):
    evaluate(model)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer
from typing_extensions import Unpack

from hf_decentral import algorithms
from hf_decentral.errors import ParameterError, PeerLost
from hf_decentral.errors.algorithms import takes_no_topology
from hf_decentral.errors.launch import (
    attached_late,
    attached_twice,
    not_an_accelerator,
    not_attached,
    nothing_gossips,
)
from hf_decentral.integrations import hosts as host_lists
from hf_decentral.integrations import optimizers
from hf_decentral.integrations.auto import Auto
from hf_decentral.integrations.composition import ALLREDUCE
from hf_decentral.integrations.launch import check_whole, check_world
from hf_decentral.integrations.settings import Given, Settings, resolve
from hf_decentral.integrations.wrapping import AllReduced, Wrapping
from hf_decentral.optim import Gossip, averaged, gossip
from hf_decentral.optim.hooks import STATE_KEY
from hf_decentral.topology.base import Topology
from hf_decentral.transport import Processes
from hf_decentral.transport.lost import Notes, cause_of, of_the_wire

logger = logging.getLogger(__name__)
_PLUGIN = "_hf_decentral_plugin"


class DecentralizedPlugin:
    """Lets the optimizers of an Accelerator average with neighbours instead of All-Reducing gradients.

    What is not given here is looked up in the environment (``DECENTRAL_TOPOLOGY`` ...), in the file named by
    ``DECENTRAL_CONFIG``, and in the file with which ``accelerate launch`` was called.

    Args:
        topology: a name (``hf-decentral topology list``), a :class:`Topology`, or ``"allreduce"`` for
            Accelerate's own All-Reduce, under which everything else here works too; ``"auto"`` chooses one,
            and ``averaging`` where that is not given, by what the first steps show.
        settings: any of ``accum`` (optimizer steps for which AccumAdam gathers gradients before it commits
            its moments), ``horizon`` (``"windows"``, as published, or ``"steps"``: what its betas count),
            ``averaging`` (what is sent and how it is combined), ``order`` (``"awc"``, ``"atc"``, ``"cta"``),
            ``comm_timeout`` (longest wait for a neighbour, in seconds), ``hosts`` (workers of each, as
            ``"4,4,2"``; left out, they are found), ``bucket_mb`` (megabytes that are exchanged as one),
            ``algorithm`` (one of the literature by name, which says what is not given), ``period`` (steps
            from one of its rounds to the next), ``delay`` (local steps that an exchange travels),
            ``cluster`` (the file of ``hf-decentral calibrate`` by which ``"auto"`` chooses at once).

    Attributes:
        settings: what was asked for.
        auto: the choice of a run with ``"auto"``, once it is attached; else None.

    Raises:
        SettingsError: a setting that is none, or cannot be meant.
    """

    def __init__(self, topology: str | Topology | None = None, **settings: Unpack[Given]) -> None:
        made = topology if isinstance(topology, Topology) else None
        self.settings: Settings = resolve({"topology": None if made else topology, **settings})
        if made and (name := self.settings.algorithm) and algorithms.build(name).topology != "{topology}":
            raise takes_no_topology(name)
        self._made = made
        self._accelerator: Accelerator | None = None
        self._allreduced = AllReduced()
        self.auto: Auto | None = None

    def attach(self, accelerator: Accelerator) -> DecentralizedPlugin:
        """Let this Accelerator's ``prepare`` make optimizers gossip; call it right after ``Accelerator()``.

        Raises:
            LaunchError: attached twice or too late, a sharding Accelerator, or one that sees one process of
                several.
            SettingsError: hosts that do not hold all the workers.
        """
        if not isinstance(accelerator, Accelerator):
            raise not_an_accelerator(accelerator)
        if self._accelerator is not None:
            raise attached_twice("plugin")
        if hasattr(accelerator, _PLUGIN):
            raise attached_twice("Accelerator")
        prepared = len(accelerator._models) + len(accelerator._optimizers)
        if prepared:
            raise attached_late(prepared)
        check_world(accelerator)
        if self.gossips:
            check_whole(accelerator)
        if self.settings.hosts is not None:
            host_lists.numbers(self.settings.hosts, accelerator.num_processes)
        self._accelerator = accelerator
        setattr(accelerator, _PLUGIN, self)
        if self.settings.auto:
            self.auto = Auto(self.settings, self.workers, accelerator.is_main_process)
        Wrapping(self, accelerator, self._how, self._allreduced)
        if accelerator.is_main_process:
            made = f"; topology is {self.topology!r}, made by the script" if self._made else ""
            logger.info("%d workers: %s%s", accelerator.num_processes, self.settings.describe(), made)
        return self

    def _how(self) -> dict[str, Any]:
        """The arguments of ``decentralize()``."""
        counts = self.settings.hosts
        return {
            "topology": self._made or self.settings.topology,
            "order": self.settings.order,
            "averaging": self.settings.averaging,
            "comm_timeout": self.settings.comm_timeout,
            "bucket_mb": self.settings.bucket_mb,
            "delay": self.settings.delay,
            "hosts": None if counts is None else host_lists.numbers(counts, self.workers),
            **(self.auto.how() if self.auto is not None else {}),
        }

    @property
    def accelerator(self) -> Accelerator:
        """The Accelerator.

        Raises:
            LaunchError: not attached yet.
        """
        if self._accelerator is None:
            raise not_attached("DecentralizedPlugin")
        return self._accelerator

    @property
    def topology(self) -> str:
        """The name of the topology; ``"allreduce"`` is Accelerate's own All-Reduce, ``"auto"`` is yet to be
        chosen."""
        if self.auto is not None and self.auto.chosen is not None:
            return self.auto.chosen.topology
        return self._made.name if self._made else self.settings.topology

    @property
    def averaging(self) -> str:
        """What is sent and how it is combined; where it is yet to be chosen, ``"plain"``."""
        chosen = self.auto.chosen if self.auto is not None else None
        return self.settings.averaging if chosen is None else chosen.averaging

    def fits(self, topology: str) -> bool:
        """Whether a checkpoint of a run on that topology may be one of this run."""
        return self.auto.fits(topology) if self.auto is not None else topology == self.topology

    def resume(self, optimizers: Sequence[dict[str, Any]], same: bool) -> None:
        """Before the states of the optimizers are loaded: take what was chosen from them. Collective.

        Args:
            optimizers: their states, in the order in which they were prepared.
            same: whether as many workers have saved them.
        """
        if self.auto is not None:
            own = [prepared.optimizer for prepared in self.accelerator._optimizers]
            self.auto.resume(own, [state.get(STATE_KEY, {}) for state in optimizers], same)

    @property
    def gossips(self) -> bool:
        """False for the All-Reduce baseline."""
        return self.topology != ALLREDUCE

    @property
    def workers(self) -> int:
        """Number of workers."""
        return int(self.accelerator.num_processes)

    @property
    def handles(self) -> list[Gossip]:
        """The handles of all prepared optimizers, in the order in which they were prepared."""
        found = []
        for optimizer in self.accelerator._optimizers:
            try:
                found.append(gossip(optimizer))
            except ParameterError:
                continue  # All-Reduce, or an optimizer whose model is not prepared yet
        return found

    def optimizer(
        self, model_or_params: nn.Module | Iterable[Any], name: str | None = None, **settings: Any
    ) -> Optimizer:
        """An optimizer by name, with this run's ``accum`` and ``horizon``; it gossips from ``prepare`` on.

        Args:
            model_or_params: a model (its norms and biases then get no weight decay), or what torch takes.
            name: a name of ``hf_decentral.integrations.optimizers.names()``; None: that of the run's
                algorithm, or ``"accumadamw"``.
            settings: ``lr``, ``weight_decay``, ``betas`` and what else that optimizer takes.

        Raises:
            SettingsError: an unknown name, or a setting that this optimizer does not have.
        """
        if self.settings.algorithm is not None:
            algorithm = algorithms.build(self.settings.algorithm)
            if name in (None, algorithm.optimizer):
                settings = {"lr": algorithm.lr, **algorithm.settings, **settings}
            name = name or algorithm.optimizer
        name = name or "accumadamw"
        known = optimizers.settings_of(name)
        for setting in optimizers.WINDOW:
            if setting in known and settings.get(setting) is None:
                settings[setting] = getattr(self.settings, setting)
        return optimizers.build(name, model_or_params, **settings)

    @contextmanager
    def averaged(self, model: nn.Module) -> Iterator[nn.Module]:
        """A context in which ``model`` holds the consensus, the mean of all workers. Collective.

        Trainable parameters and floating-point buffers are averaged. At the end every worker has its own
        back, bit for bit; what is written to them inside is lost. With All-Reduce nothing needs to be done.

        Raises:
            ParameterError: no prepared optimizer trains this model.
        """
        if not self.gossips or self.workers == 1:
            yield model
            return
        if not self.trains(model):
            raise nothing_gossips()
        with averaged(model):
            yield model

    def trains(self, model: nn.Module) -> bool:
        """True where a prepared optimizer exchanges parameters of this model."""
        params = {id(p) for p in model.parameters()}
        return any(handle.owns(params) for handle in self.handles)

    def distance(self) -> float:
        """Consensus distance: root mean square over the workers of ``||x_i - mean||``. Collective."""
        return float(sum(handle.distance() ** 2 for handle in self.handles) ** 0.5)

    @property
    def sent_bytes(self) -> float:
        """Bytes that this worker has sent; for All-Reduce ``2 (n-1)/n`` times the gradients (a ring)."""
        own = sum(handle.sent_bytes for handle in self.handles)
        return own if self.gossips else self._allreduced.sent_bytes(self.workers)

    @property
    def waited_seconds(self) -> float:
        """Seconds that this worker has stood still for others; 0 for All-Reduce, which does not tell."""
        return float(sum(handle.waited_seconds for handle in self.handles))

    def gather(self, value: Any) -> list[Any]:
        """The value of every worker, in their order. Collective.

        Raises:
            PeerLost: a worker did not answer within the deadline.
        """
        if self.workers == 1:
            return [value]
        for handle in self.handles:
            return handle.transport.gather(value)
        values: list[Any] = [None] * self.workers
        with self.naming():
            dist.all_gather_object(values, value)
        return values

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Collective calls in here that are not of this package fail with an error that names the worker.

        Raises:
            PeerLost: in the place of the error of torch.distributed.
        """
        try:
            yield
        except RuntimeError as error:
            if self.workers == 1 or not of_the_wire(error):
                raise
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> PeerLost:
        for handle in self.handles:
            if isinstance(handle.transport, Processes):
                return handle.transport.explain(error)
        me = self.accelerator.process_index
        others = [worker for worker in range(self.workers) if worker != me]
        return Notes(me, "before").explain(others, -1, None, None, cause_of(error))
