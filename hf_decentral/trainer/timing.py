"""Seconds of a Trainer's steps, without its evaluations and checkpoints."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from hf_decentral.integrations.meter import Meter
from hf_decentral.integrations.plugin import DecentralizedPlugin


class StepTimer(TrainerCallback):
    """Times the steps between the lines of the log.

    Args:
        plugin: the Trainer's plugin.
    """

    def __init__(self, plugin: DecentralizedPlugin) -> None:
        self.meter = Meter(plugin)
        self._running = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on after what was not a step."""
        if not self._running:
            self.meter.start(state.global_step)
            self._running = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop before what is not a step."""
        other = control.should_log or control.should_evaluate or control.should_save
        if self._running and (other or control.should_training_stop):
            self.meter.stop(state.global_step)
            self._running = False
