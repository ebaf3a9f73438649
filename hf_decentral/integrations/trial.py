"""The first steps of a run that is to choose its topology: nothing is sent, and they are timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hf_decentral.cluster.stopwatch import Steps, Stopwatch
from hf_decentral.integrations.composition import is_auto
from hf_decentral.optim import Gossip, gossip
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology

WARM_UP = 2
"""First steps, which are slower than the others and do not count."""

COUNTED = 8
"""Steps that are timed."""

TRIAL = WARM_UP + COUNTED + 1
"""Steps until the choice, which is made at the end of one that does not count."""

LEAST = WARM_UP + COUNTED // 2 + 1
"""Steps after a checkpoint in the middle of the trial was loaded."""


def apart(name: str, workers: int) -> Topology:
    """Nobody talks: the topology of a trial."""
    return Topology.cycle(name, [Round.identity(workers)])


class Trial:
    """One optimizer of a run that is to choose.

    Args:
        optimizer: a decentralized one.
        model: what it trains, for the time of the forward pass.
        after: called after each of its steps that is taken without a choice. Collective there.
    """

    def __init__(self, optimizer: Optimizer, model: nn.Module | None, after: Callable[[Trial], None]) -> None:
        self.optimizer = optimizer
        self.handle: Gossip = gossip(optimizer)
        self.stopwatch: Stopwatch | None = None
        self._model = model
        self._call = after
        self._step = 0
        self._begun: int | None = None
        self._least = TRIAL
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    @property
    def on(self) -> bool:
        """Whether nothing is sent yet."""
        return is_auto(self.handle.topology.name)

    @property
    def done(self) -> int:
        """Steps since the end of the trial; negative before it."""
        if self._begun is None:
            return -TRIAL
        # A trial that a checkpoint interrupted ends with the step with which it would have ended.
        end = self._begun + TRIAL if self._least == TRIAL else max(TRIAL, self._begun + self._least)
        return self.handle.step - end

    @property
    def size(self) -> int:
        """Bytes of the trained parameters."""
        params = (p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad)
        return sum(p.numel() * p.element_size() for p in params)

    @property
    def device(self) -> torch.device:
        """Where they live."""
        found: Tensor = self.optimizer.param_groups[0]["params"][0]
        return found.device

    def begin(self, steps: int = TRIAL) -> None:
        """Time so many steps from the next one on."""
        self.end()
        self._begun, self._least = None, steps
        self.stopwatch = Stopwatch(self.optimizer, self._model)

    def timed(self) -> Steps:
        """What was timed; waits for steps that a GPU has not done yet."""
        return Steps((), (), None, (), self.size) if self.stopwatch is None else self.stopwatch.steps()

    def end(self) -> None:
        """Time no more steps."""
        if self.stopwatch is not None:
            self.stopwatch.remove()
            self.stopwatch = None

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._step = self.handle.step

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        step = self.handle.step
        if not self.on or step == self._step:
            return  # the inner one of two: step() of a class that calls super().step()
        if self._begun is None:
            self._begun = self._step
        if self.stopwatch is not None and step == self._begun + WARM_UP:
            self.stopwatch.clear()
        self._call(self)
