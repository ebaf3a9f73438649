"""Where work runs behind the computing: one thread for a process, or one stream for an accelerator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Background:
    """One thread that does what it is given in order. It is a daemon: a process that ends on an error must
    not stay until the deadline of a wait."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, work: Callable[[], T]) -> Callable[[], T]:
        """Queue some work; the returned function waits for its result or raises its error.

        Work that is begun by work of this thread is done at once, since nothing queued after it could be.
        """
        if threading.current_thread() is self._thread:
            result = work()
            return lambda: result
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hf_decentral exchange", daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        self._queue.put((future, work))
        return future.result

    def _run(self) -> None:
        while True:
            future, work = self._queue.get()
            try:
                with torch.no_grad():
                    future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            del future, work  # what it held is not held until the next one comes


@cache
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def on_stream(work: Callable[[], T]) -> Callable[[], T]:
    """Queue the kernels and NCCL calls of some work on a stream beside the present one. The host never waits;
    the returned function makes the then present stream wait for them."""
    stream = _stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        result = work()
        done.record(stream)

    def wait() -> T:
        torch.cuda.current_stream().wait_event(done)  # not for what was queued behind it since
        return result

    return wait
