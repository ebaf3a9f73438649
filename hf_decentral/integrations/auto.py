"""``topology="auto"``: the run chooses its topology, and what it sends, by what its first steps show.

The choice is made once, by worker 0, and is the same on every worker. Checkpoints hold it, so that a run that
is resumed goes on with it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from hf_decentral import averaging as methods
from hf_decentral.cluster.handling import METHODS
from hf_decentral.cluster.iteration import Method, step_seconds
from hf_decentral.cluster.measured import Measured, read
from hf_decentral.errors import DecentralizedError, SettingsError, TopologyError
from hf_decentral.errors.auto import nothing_fits, other_cluster
from hf_decentral.errors.parameters import wrong_checkpoint
from hf_decentral.integrations import hosts as host_lists
from hf_decentral.integrations.composition import ALLREDUCE, AUTO, chosen, is_auto
from hf_decentral.integrations.measuring import measure
from hf_decentral.integrations.settings import Settings
from hf_decentral.integrations.trial import LEAST, TRIAL, Trial, apart
from hf_decentral.optim.agreement import together
from hf_decentral.optim.plan import make_plan
from hf_decentral.optim.registry import alive
from hf_decentral.optim.replan import replan, restore
from hf_decentral.planner import choose
from hf_decentral.planner.advise import WORTH
from hf_decentral.planner.candidates import AVERAGINGS, PLAIN, TOPOLOGIES
from hf_decentral.transport import find_hosts

State = dict[str, Any]
logger = logging.getLogger(__name__)
_ALONE = "complete"  # where there is nothing to choose
_OTHERWISE = "aer"  # where nothing could be measured
_PATIENCE = 4  # trials that the smaller optimizers wait for the largest one


@dataclass(frozen=True)
class Chosen:
    """What was chosen.

    Attributes:
        topology: as ``decentralize()`` takes it.
        averaging: the same.
        why: for people.
    """

    topology: str
    averaging: str
    why: str


class Auto:
    """The choice of one run.

    Args:
        settings: of the run; its topology has ``auto`` in it.
        workers: number of workers.
        first: whether this is the worker that tells people.

    Attributes:
        chosen: None before the choice.
    """

    def __init__(self, settings: Settings, workers: int, first: bool) -> None:
        self._settings = settings
        self._workers = workers
        self._first = first
        self._trials: list[Trial] = []
        self._hosts: tuple[int, ...] | None = None
        self.chosen: Chosen | None = None
        if workers == 1:
            why = "one worker has nobody to average with: there is nothing to plan"
            self._choose(Chosen(self._name(_ALONE), settings.averaging, why))

    def how(self) -> dict[str, Any]:
        """Topology and averaging for ``decentralize()``."""
        if self.chosen is not None:
            return {"topology": self.chosen.topology, "averaging": self.chosen.averaging}
        return {"topology": apart(self._settings.topology, self._workers), "averaging": PLAIN}

    def watch(self, optimizer: Optimizer, model: nn.Module | None) -> None:
        """Time the steps of a decentralized optimizer, or choose at once by the file. Collective then.

        Raises:
            SettingsError: settings that no topology goes with, or a file of another cluster.
        """
        self._trials = [each for each in self._trials if each.handle in alive()]  # others were replaced
        trial = Trial(optimizer, model, self._after)
        self._trials.append(trial)
        if not trial.on:
            return
        if self._settings.cluster is not None:
            self._from_file(trial)
            return
        self._candidates(trial)
        trial.begin()

    def fits(self, topology: str) -> bool:
        """Whether a checkpoint of that topology may be one of this run."""
        pattern = re.escape(self._settings.topology).replace(AUTO, ".+")
        return topology != ALLREDUCE and re.fullmatch(pattern, topology) is not None

    def resume(self, optimizers: Sequence[Optimizer], states: Sequence[State], same: bool) -> None:
        """Take the choice from a checkpoint whose states are loaded next. Collective.

        Args:
            optimizers: those of the run.
            states: where the rounds of each of them stood.
            same: whether there were as many workers; if not, the choice is made anew, and what the states
                tell of the old one is taken out of them.

        Raises:
            MismatchError: the workers read different plans, or one of another averaging method than was asked
                for.
            SettingsError, TopologyError: the plan does not go with the settings of this run.
        """
        if not same or self._workers == 1:
            for state in states:
                state.pop("averaging", None)  # no moments and no memories are kept
        if self._workers == 1 or not self._trials:
            return
        plans = [(str(s.get("topology", AUTO)), str(s.get("averaging", PLAIN))) for s in states]
        if not same:
            plans = [(AUTO, PLAIN)] * len(plans)
        known = next((plan for plan in plans if not is_auto(plan[0])), None)

        def make() -> list[tuple[str, str]]:
            own = self._settings.averaging
            if known is not None and self._settings.fixed("averaging") and known[1] != own:
                raise wrong_checkpoint(f"averaging {known[1]!r}", f"averaging {own!r}")
            return plans

        wire = self._trials[0].handle.transport
        together(wire, make, lambda found: (("the plan of the checkpoint", str(found)),))
        self.chosen = None
        if known is not None:
            self._choose(Chosen(*known, "as the checkpoint has it"))
        trials = {id(trial.optimizer): trial for trial in self._trials}
        for optimizer, plan in zip(optimizers, plans, strict=True):
            if id(optimizer) in trials:
                self._put(trials[id(optimizer)], *plan, LEAST if same else TRIAL)

    def _put(self, trial: Trial, topology: str, averaging: str, steps: int) -> None:
        trial.end()
        if not is_auto(topology):
            restore(trial.handle, topology, averaging, hosts=self._find(trial))
            return
        restore(trial.handle, apart(self._settings.topology, self._workers), PLAIN)
        if self.chosen is None and self._settings.cluster is not None:
            self._from_file(trial)
        elif self.chosen is None:
            trial.begin(steps)

    def _after(self, trial: Trial) -> None:
        """After a step on trial: choose if it is time, and go on with what was chosen. Collective then.

        Every optimizer changes at the end of a step of its own, when nobody computes with its parameters.
        """
        if self.chosen is None:
            if not self._due(trial):
                return
            self._decide()
        if self.chosen is not None:
            replan(trial.handle, self.chosen.topology, self.chosen.averaging, hosts=self._find(trial))

    def _due(self, trial: Trial) -> bool:
        largest = max(self._trials, key=lambda each: each.size)
        return trial.done >= (0 if trial is largest else (_PATIENCE - 1) * TRIAL)

    def _decide(self) -> None:
        """Measure the cluster, let worker 0 choose, and tell everybody. Collective."""
        trial = max((each for each in self._trials if each.done >= 0), key=lambda each: each.size)
        wire, hosts = trial.handle.transport, self._find(trial)
        methods = self._candidates(trial)[1]
        found = measure(trial, hosts, [each for each in methods or AVERAGINGS if each in METHODS])

        def make() -> Chosen | None:
            if wire.local[0] != 0:
                return None
            try:
                return self._best(found(), trial)
            except DecentralizedError as error:
                return self._without(str(error), trial)

        made = wire.gather(together(wire, make, lambda choice: ()))[0]
        self._choose(made)

    def _from_file(self, trial: Trial) -> None:
        """Choose by the file that tells of the cluster. Collective."""
        wire, hosts = trial.handle.transport, self._find(trial)
        path = Path(str(self._settings.cluster)).expanduser()

        def make() -> Chosen:
            measured = read(path)
            if _numbered(measured.hosts) != _numbered(hosts):
                raise other_cluster(str(path), measured.hosts, hosts)
            return self._best(measured, trial)

        made = together(wire, make, lambda found: (("the choice by the cluster file", str(found)),))
        self._choose(made)
        restore(trial.handle, made.topology, made.averaging, hosts=hosts)  # all are equal at the beginning

    def _best(self, measured: Measured, trial: Trial) -> Chosen:
        """The best of what goes with the settings. A pure function of what was measured."""
        names, averagings = self._candidates(trial)
        choice = choose(measured, topologies=names, averagings=averagings)
        kept = step_seconds(measured, Method())[0]
        why = f"{choice.why}; All-Reduce would take {1000 * kept:.4g} ms"
        if choice.speedup_over_allreduce < WORTH:
            why += ". To stay with All-Reduce is better here: launch with --topology allreduce next time"
        averaging = self._settings.averaging if self._settings.fixed("averaging") else choice.averaging
        return Chosen(choice.topology, averaging, why)

    def _without(self, reason: str, trial: Trial) -> Chosen:
        """Where nothing could be measured."""
        names, _ = self._candidates(trial)
        usual = self._name(_OTHERWISE)
        why = f"nothing could be measured ({' '.join(reason.split())})"
        return Chosen(usual if usual in names else names[0], self._settings.averaging, why)

    def _candidates(self, trial: Trial) -> tuple[list[str], list[str] | None]:
        """Topologies that go with the settings, and the averaging methods to choose from; None: the usual.

        Raises:
            SettingsError: there are none.
        """
        settings = self._settings
        plain = settings.topology == AUTO  # no schedule around a schedule
        names = [self._name(name) for name in TOPOLOGIES if plain or "(" not in name]
        problems = {name: self._problem(name, settings.averaging, trial) for name in names}
        fitting = [name for name, problem in problems.items() if problem is None]
        if not fitting:
            reason = str(problems[names[0]]).split("\n")[0].rstrip(".")
            raise nothing_fits(settings.averaging, settings.order, settings.delay, reason)
        if settings.fixed("averaging"):
            timed = "awc" in methods.build(settings.averaging).orders  # as which a step is predicted
            return fitting, [settings.averaging if timed else PLAIN]
        usual = all(self._problem(fitting[0], each, trial) is None for each in AVERAGINGS)
        return fitting, None if usual else [PLAIN]

    def _problem(self, topology: str, averaging: str, trial: Trial) -> Exception | None:
        s, hosts = self._settings, self._find(trial)
        try:
            plan = make_plan(topology, s.order, averaging, self._workers, hosts, s.bucket_mb, s.delay)
            plan.check_optimizer(trial.optimizer)
        except (SettingsError, TopologyError) as error:
            return error
        return None

    def _name(self, choice: str) -> str:
        return chosen(self._settings.topology, choice)

    def _find(self, trial: Trial) -> tuple[int, ...]:
        """The host of each worker. Collective for the first time."""
        if self._hosts is None:
            given = self._settings.hosts
            found = (
                find_hosts(trial.handle.transport)
                if given is None
                else host_lists.numbers(given, self._workers)
            )
            self._hosts = found if found is not None else tuple(range(self._workers))
        return self._hosts

    def _choose(self, choice: Chosen) -> None:
        self.chosen = choice
        for trial in self._trials:
            trial.end()
        if self._first:
            logger.info("topology auto: %s, %s averaging: %s", choice.topology, choice.averaging, choice.why)


def _numbered(hosts: Sequence[int]) -> tuple[int, ...]:
    """Hosts by the order of their first workers, whatever they are called."""
    order = list(dict.fromkeys(hosts))
    return tuple(order.index(host) for host in hosts)
