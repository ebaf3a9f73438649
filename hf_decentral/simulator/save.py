"""A simulated run that can be stopped: its checkpoint, and an interrupt that waits for the end of a step."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from hf_decentral.errors.simulator import cannot_save, not_a_run, not_this_run

EVERY_SECONDS = 60.0
"""Time from one checkpoint to the next; it grows with the time that writing one takes."""

_SHARE = 0.05  # of the time of a run that writing may take


class Checkpoint:
    """The file from which a run goes on.

    Args:
        path: where it is; a file of another run is refused, not overwritten.
        about: what determines the run, as plain names and numbers.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self._path = Path(path)
        self._about = about
        self._next = monotonic() + EVERY_SECONDS

    def load(self) -> dict[str, Any] | None:
        """What was written last; None where there is no file.

        Raises:
            CheckpointError: a file that is none of this run.
        """
        if not self._path.exists():
            return None
        try:
            # Mapped: only what is looked at is read.
            kept = torch.load(self._path, weights_only=True, mmap=True)
            about, state = kept["about"], kept["state"]
        except (
            OSError,
            RuntimeError,
            ValueError,
            KeyError,
            TypeError,
            EOFError,
            pickle.UnpicklingError,
        ) as error:
            raise not_a_run(self._path, _cause(error)) from error
        for what, expected in self._about.items():
            if about.get(what) != expected:
                raise not_this_run(self._path, what, about.get(what), expected)
        return dict(state)

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return monotonic() >= self._next

    def write(self, state: dict[str, Any]) -> None:
        """Write aside, then rename: what was there before is whole until the new one is.

        Raises:
            CheckpointError: it cannot be written.
        """
        begun = monotonic()
        aside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as file:
                torch.save({"about": self._about, "state": state}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self._path)
        except (OSError, RuntimeError) as error:
            raise cannot_save(self._path, str(error).splitlines()[0]) from error
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
        now = monotonic()
        self._next = now + max(EVERY_SECONDS, (now - begun) / _SHARE)


def _cause(error: Exception) -> str:
    """Why a file cannot be read, in one line."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds something else than tensors, names and numbers"
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def patient() -> Iterator[Callable[[], None]]:
    """A context in which Ctrl-C waits until the function that it gives is called; a second one does not."""
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None  # somebody else looks after it
        return
    asked: list[int] = []

    def remember(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def answer() -> None:
        if asked:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, remember)
    try:
        yield answer
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
