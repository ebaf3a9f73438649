"""The steps of the user's own script, which is stopped when there are enough of them."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hf_decentral.calibration.count import FEWEST_STEPS, WARMUP_STEPS, enough
from hf_decentral.calibration.progress import Progress
from hf_decentral.calibration.silence import Silence
from hf_decentral.cluster.stopwatch import Steps, Stopwatch
from hf_decentral.errors.calibration import too_few_steps
from hf_decentral.errors.peers import not_initialized
from hf_decentral.run import run_module, run_script


class Enough(BaseException):
    """Ends the script in the middle of its training; no error, so that nothing that expects one takes it."""


class Watched:
    """What was found of a script.

    Attributes:
        steps: of the optimizer with the most parameters.
        device: where its parameters are.
    """

    def __init__(self, steps: Steps, device: torch.device) -> None:
        self.steps, self.device = steps, device


class _Watcher:
    """Looks at every step of every optimizer, times those of the largest, stops all workers at one step."""

    def __init__(self, silence: Silence, seconds: float, progress: Progress) -> None:
        self._silence, self._seconds, self._progress = silence, seconds, progress
        self._optimizer: Optimizer | None = None
        self._size = 0
        self._wanted: int | None = None  # steps to time; None until the workers have agreed
        self.watch: Stopwatch | None = None
        self.device = torch.device("cpu")

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Called before any optimizer's step."""
        self._silence.training = True
        if optimizer is not self._optimizer:
            self._look(optimizer)
        if self.watch is None or optimizer is not self._optimizer:
            return
        taken = self.watch.taken
        if self._wanted is None and taken >= WARMUP_STEPS:
            records = self.watch.records[1:]
            own = sum(each.compute_seconds + each.local_seconds for each in records) / len(records)
            self._wanted = enough(own, self._seconds, self.device)
            self._progress.skip()
            self.watch.clear()
        elif self._wanted is not None:
            self._progress("steps")
            if taken >= self._wanted:
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
        self.watch = Stopwatch(optimizer, self._silence.model_of(optimizer))


def watch(words: Sequence[str], seconds: float, progress: Progress) -> Watched:
    """Run a script until enough of its steps were timed. Collective; workers talk before those that count.

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
        hook = register_optimizer_step_pre_hook(watcher.before)
        try:
            _run(words)
        except Enough as enough_of_it:
            enough_of_it.__traceback__ = None  # it holds what the script held
        else:
            found = 0 if watcher.watch is None else len(watcher.watch.records)
            raise too_few_steps(words[words[0] == "-m"], found, FEWEST_STEPS)
        finally:
            hook.remove()
            if watcher.watch is not None:
                watcher.watch.remove()
    if watcher.watch is None:
        raise too_few_steps(words[words[0] == "-m"], 0, FEWEST_STEPS)
    found_steps = watcher.watch.steps()
    device = watcher.device
    del watcher, silence
    gc.collect()  # models, and loaders whose processes would go on reading data
    return Watched(found_steps, device)


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
