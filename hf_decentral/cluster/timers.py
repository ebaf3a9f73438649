"""Moments of a run: of the processor's clock, or events on the stream of a GPU, which are read later."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

Mark = Any
"""A moment; only the timer that made it can read it."""


class Timer(Protocol):
    """Marks moments, and tells how far apart they were."""

    def mark(self) -> Mark:
        """This moment."""

    def seconds(self, first: Mark, second: Mark) -> float:
        """From one moment to the other; waits until both have come."""

    def passed(self, mark: Mark) -> bool:
        """Whether a moment has come; waits for nothing."""


class Wall:
    """The clock of the processor."""

    mark = staticmethod(time.perf_counter)

    def seconds(self, first: float, second: float) -> float:
        """See :meth:`Timer.seconds`."""
        return second - first

    def passed(self, mark: float) -> bool:
        """See :meth:`Timer.passed`."""
        return True


class Stream:
    """Events on the stream that is current when they are marked.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        """See :meth:`Timer.mark`."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """See :meth:`Timer.seconds`."""
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3

    def passed(self, mark: torch.cuda.Event) -> bool:
        """See :meth:`Timer.passed`."""
        return bool(mark.query())  # type: ignore[no-untyped-call]


def timer(device: torch.device) -> Timer:
    """The timer of what runs on a device."""
    return Stream(device) if device.type == "cuda" else Wall()
