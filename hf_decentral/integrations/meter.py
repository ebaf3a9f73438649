"""What a training script's steps take: seconds, bytes, waiting; counted on when a run is resumed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch

from hf_decentral.integrations.plugin import DecentralizedPlugin


class Meter:
    """A stopwatch that is read every few steps, beside the plugin's own counts.

    The call of a step only hands it to a GPU. So the time is taken where the device has caught up, over all
    steps since the start; waiting for the device at each of them would slow them down. Validations and
    checkpoints lie between a stop and the next start.

    Args:
        plugin: attached to the run's Accelerator.
    """

    def __init__(self, plugin: DecentralizedPlugin) -> None:
        self._plugin = plugin
        self._before = {"seconds": 0.0, "sent_bytes": 0.0, "waited_seconds": 0.0}
        self._spans: list[tuple[float, int]] = []  # seconds and number of steps
        self._began, self._step = time.perf_counter(), 0

    def _now(self) -> float:
        device = self._plugin.accelerator.device
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return time.perf_counter()

    def start(self, step: int) -> None:
        """Time counts again; ``step`` steps were taken in all."""
        self._began, self._step = self._now(), step

    def stop(self, step: int) -> None:
        """Time does not count until the next start; ``step`` steps were taken in all."""
        if step > self._step:
            self._spans.append((self._now() - self._began, step - self._step))

    def totals(self) -> dict[str, float]:
        """``seconds``, ``sent_bytes``, ``waited_seconds`` of this worker since the run began."""
        before = self._before
        return {
            "seconds": before["seconds"] + sum(seconds for seconds, _ in self._spans),
            "sent_bytes": before["sent_bytes"] + self._plugin.sent_bytes,
            "waited_seconds": before["waited_seconds"] + self._plugin.waited_seconds,
        }

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Count on from the :meth:`totals` of a checkpoint."""
        now = self.totals()
        for name, value in self._before.items():
            self._before[name] = value + saved.get(name, 0.0) - now[name]

    @property
    def step_seconds(self) -> float:
        """Median of a step's seconds over the spans, without the first one, which warms up."""
        spans = self._spans[1:] or self._spans
        return statistics.median(seconds / steps for seconds, steps in spans) if spans else 0.0

    @property
    def steps_per_second(self) -> float:
        """Over everything that this process has timed."""
        seconds = sum(seconds for seconds, _ in self._spans)
        return sum(steps for _, steps in self._spans) / seconds if seconds else 0.0
