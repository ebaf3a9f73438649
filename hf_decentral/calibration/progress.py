"""A bar that fills with the time that was planned."""

from __future__ import annotations

import time

from tqdm import tqdm


class Progress:
    """What is being measured, and how much of the time is gone.

    Args:
        seconds: about how long it will take.
        shown: on worker 0.
    """

    def __init__(self, seconds: float, shown: bool) -> None:
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}"
        self._bar = tqdm(total=round(seconds, 1), bar_format=form, disable=None if shown else True)
        self._at = time.perf_counter()

    def __call__(self, what: str) -> None:
        """Tell what is being measured now."""
        now = time.perf_counter()
        left = max(0.0, (self._bar.total or 0.0) - self._bar.n)
        self._bar.set_description(what, refresh=False)
        self._bar.update(min(left, now - self._at))
        self._at = now

    def skip(self) -> None:
        """What passed since the last call was not planned for."""
        self._at = time.perf_counter()

    def close(self) -> None:
        """The end."""
        self._bar.update(max(0.0, (self._bar.total or 0.0) - self._bar.n))
        self._bar.close()
