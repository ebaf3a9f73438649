"""Real gloo processes for the tests.

``run(4, function, *args)`` calls ``function(rank, *args)`` in four joined processes and gives back what they
returned. The functions stand at the top of a test module, so that a process can import them.
"""

from __future__ import annotations

import atexit
import io
import multiprocessing
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist

_context = multiprocessing.get_context("forkserver")
# The server imports torch once; each process is then a fork of it and starts in milliseconds.
_context.set_forkserver_preload(
    [
        "torch",
        "torch.distributed",
        "torch._dynamo",
        "hf_decentral.optim",
        "accelerate",
        "hf_decentral.trainer",
    ]
)


@dataclass
class Outcome:
    """How one process ended: what it returned, or its error, or neither where it was killed."""

    value: Any = None
    error: str = ""
    exit_code: int | None = None


def _say(answer: Connection, outcome: Outcome) -> None:
    # As bytes: a tensor sent through a pipe stays in shared memory that ends with its process.
    written = io.BytesIO()
    torch.save(outcome, written)
    answer.send_bytes(written.getvalue())


def _child(
    function: Callable[..., Any], rank: int, workers: int, port: int, args: Any, answer: Connection
) -> None:
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(workers), GROUP_RANK="0", GLOO_SOCKET_IFNAME="lo"
    )
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=workers, timeout=timedelta(seconds=60))
    try:
        value = function(rank, *args)
        atexit._run_exitfuncs()  # multiprocessing leaves a process without them; a launched script runs them
        _say(answer, Outcome(value))
    except BaseException as error:  # the parent must hear of it whatever it is
        _say(answer, Outcome(error="".join(traceback.format_exception(error))))
        raise SystemExit(1) from None


def outcomes(workers: int, function: Callable[..., Any], *args: Any, timeout: float = 120) -> list[Outcome]:
    """How each of the processes ended."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = [_context.Pipe(duplex=False) for _ in range(workers)]
    children = [
        _context.Process(target=_child, args=(function, rank, workers, store.port, args, pipes[rank][1]))
        for rank in range(workers)
    ]
    for child, (_, there) in zip(children, pipes, strict=True):
        child.start()
        there.close()
    found = [Outcome() for _ in range(workers)]
    waiting = {here: rank for rank, (here, _) in enumerate(pipes)}
    until = monotonic() + timeout
    while waiting:
        ready = wait(list(waiting), timeout=max(0.0, until - monotonic()))
        if not ready:
            break
        for here in ready:
            rank = waiting.pop(here)  # type: ignore[call-overload]
            with suppress(EOFError):  # killed before it could say anything
                said = here.recv_bytes()  # type: ignore[union-attr]
                found[rank] = torch.load(io.BytesIO(said), weights_only=False)
    stuck = sorted(waiting.values())
    for child, outcome in zip(children, found, strict=True):
        child.join(0 if stuck else max(0.1, until - monotonic()))
        if child.exitcode is None:
            child.kill()
            child.join()
        outcome.exit_code = child.exitcode
    if stuck:
        raise TimeoutError(f"workers {stuck} of {workers} did not end within {timeout} s")
    return found


def run(workers: int, function: Callable[..., Any], *args: Any, timeout: float = 120) -> list[Any]:
    """What each of the processes returned; the first error of any of them is raised."""
    found = outcomes(workers, function, *args, timeout=timeout)
    for rank, outcome in enumerate(found):
        if outcome.error or outcome.exit_code != 0:
            raise RuntimeError(f"worker {rank} ended with {outcome.exit_code}:\n{outcome.error}")
    return [outcome.value for outcome in found]
