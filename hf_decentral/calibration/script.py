"""The steps of the user's own script, which is stopped when there are enough of them."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hf_decentral.calibration.count import FEWEST_STEPS, WARMUP_STEPS, enough, slowest_seconds
from hf_decentral.calibration.progress import Progress
from hf_decentral.calibration.silence import Silence
from hf_decentral.cluster.stopwatch import Steps, Stopwatch
from hf_decentral.errors.calibration import too_few_steps
from hf_decentral.errors.peers import not_initialized
from hf_decentral.run import run_module, run_script

_MOST_TRIES = 20  # to find a first step in which the model was not evaluated


class Enough(BaseException):
    """Ends the script in the middle of its training; no error, so that nothing that expects one takes it."""


@dataclass(frozen=True)
class Watched:
    """What was found of a script.

    Attributes:
        steps: of the optimizer with the most parameters.
        device: where its parameters are.
    """

    steps: Steps
    device: torch.device


class _Watcher:
    """Looks at all steps of all optimizers, times those of the largest, and stops all workers at one step."""

    def __init__(self, silence: Silence, seconds: float, progress: Progress) -> None:
        self._silence, self._seconds, self._progress = silence, seconds, progress
        self._optimizer: Optimizer | None = None
        self._size = self._tries = 0
        self._wanted: int | None = None  # steps to time; None until the workers have agreed
        self.watch: Stopwatch | None = None
        self.device = torch.device("cpu")

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Called before any optimizer's step."""
        self._silence.training = True
        if optimizer is not self._optimizer:
            self._look(optimizer)
        if self.watch is None:
            return
        if optimizer is self._optimizer:
            self._count(self.watch)
        self.watch.before(optimizer, args, kwargs)

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Called after any optimizer's step."""
        if self.watch is not None:
            self.watch.after(optimizer, args, kwargs)

    def _count(self, watch: Stopwatch) -> None:
        """Agree after the first steps how many to time, and end with the last of those."""
        if self._wanted is None and watch.taken >= WARMUP_STEPS:
            slowest = slowest_seconds(_usual(watch), self.device)
            self._tries += 1
            if math.isinf(slowest) and self._tries < _MOST_TRIES:
                watch.clear()
                return
            self._wanted = enough(slowest, self._seconds)
            self._progress.skip()
            watch.clear()
        elif self._wanted is not None:
            self._progress("steps")
            if watch.taken > self._wanted:  # the first one has no beginning
                raise Enough

    def _look(self, optimizer: Optimizer) -> None:
        """Take this optimizer in the place of a smaller one."""
        params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        size = sum(p.numel() for p in params)
        if size <= self._size:
            return
        if self.watch is not None:
            self.watch.remove()
        world = os.environ.get("WORLD_SIZE", "1")
        if world not in ("", "1") and not dist.is_initialized():
            raise not_initialized(world)
        self._optimizer, self._size, self._wanted = optimizer, size, None
        self.device = params[0].device
        self.watch = Stopwatch(optimizer, self._silence.model_of(optimizer), hooked=False)


def _usual(watch: Stopwatch) -> float:
    """Seconds of a step; infinite where the model was evaluated in all of them."""
    times = [each.compute_seconds + each.local_seconds for each in watch.records[1:]]
    return sum(times) / len(times) if times else math.inf


def watch(words: Sequence[str], seconds: float, progress: Progress) -> Watched:
    """Run a script until enough of its steps were timed. Collective: workers agree how many, before those.

    Args:
        words: the script with its arguments, or ``-m`` and a module.
        seconds: about how long to time steps.
        progress: told after each step.

    Raises:
        LaunchError: there is no such script, or it ended too early.
    """
    silence = Silence()
    watcher = _Watcher(silence, seconds, progress)
    with silence.kept():
        hooks = (
            register_optimizer_step_pre_hook(watcher.before),
            register_optimizer_step_post_hook(watcher.after),
        )
        ended = False
        try:
            _run(words)
            ended = True
        except Enough as stop:
            stop.__traceback__ = None  # it holds what the script held
        finally:
            for hook in hooks:
                hook.remove()
            if watcher.watch is not None:
                watcher.watch.remove()
    if ended or watcher.watch is None:
        found = 0 if watcher.watch is None else len(watcher.watch.records)
        raise too_few_steps(words[words[0] == "-m"], found, FEWEST_STEPS)
    result = Watched(watcher.watch.steps(), watcher.device)
    del watcher, silence
    gc.collect()  # models, and loaders whose processes would go on reading data
    return result


def _run(words: Sequence[str]) -> None:
    """Run it; an exit that tells of no error is an end like any other."""
    try:
        if words[0] == "-m":
            run_module(words[1], words[2:])
        else:
            run_script(Path(words[0]), words[1:])
    except SystemExit as left:
        if left.code not in (None, 0):
            raise
