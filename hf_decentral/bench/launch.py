"""Start one process per worker with torchrun's variables, on shaped hosts or loopback, and end them all."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from hf_decentral.bench.namespaces import DEVICE, Namespaces
from hf_decentral.errors.bench import worker_failed

_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 5.0
_LAST_LINES = 40
_ENDS_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h


class Hosts(Protocol):
    """Where workers run."""

    hosts: int

    def inside(self, host: int, command: Sequence[str]) -> list[str]:
        """The words that run a command inside a host."""


class Loopback:
    """Hosts in name only: processes of this machine that talk over loopback."""

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts

    def inside(self, host: int, command: Sequence[str]) -> list[str]:
        """The command as it is."""
        return list(command)


def run(
    hosts: Hosts, workers_per_host: int, command: Sequence[str], extra: Mapping[str, str] | None = None
) -> None:
    """Run a command once for every worker until all have ended well. What worker 0 prints is printed.

    Args:
        hosts: :class:`Namespaces` (entered) or :class:`Loopback`.
        workers_per_host: workers of every host.
        command: the words of the command.
        extra: variables for all workers, besides torchrun's.

    Raises:
        LaunchError: a worker failed; the end of its stderr is printed and all others are ended.
    """
    with tempfile.TemporaryDirectory(prefix="hfd-bench-") as folder:
        logs = [Path(folder) / f"{rank}.txt" for rank in range(hosts.hosts * workers_per_host)]
        shared = _shared(hosts, len(logs), workers_per_host)
        workers: list[subprocess.Popen[bytes]] = []
        try:
            for rank, log in enumerate(logs):
                host, local = divmod(rank, workers_per_host)
                own = {"RANK": rank, "LOCAL_RANK": local, "GROUP_RANK": host, "NODE_RANK": host}
                environment = {
                    **os.environ,
                    **shared,
                    **(extra or {}),
                    **{name: str(value) for name, value in own.items()},
                }
                workers.append(_start(hosts.inside(host, command), environment, log, shown=rank == 0))
            failed = _wait(workers)
        finally:
            end(workers)
        if failed is not None:
            if failed:  # worker 0's words were shown as it said them
                lines = logs[failed].read_text(encoding="utf-8", errors="replace").splitlines()
                sys.stderr.write("\n".join(lines[-_LAST_LINES:]) + "\n")
            raise worker_failed(failed, workers[failed].returncode)


def end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the workers that still run, each with all it started: asked first, then made to."""
    running = [worker for worker in workers if worker.poll() is None]
    for worker in running:
        _signal(worker, signal.SIGTERM)
    until = time.monotonic() + _GRACE_SECONDS
    for worker in running:
        try:
            worker.wait(max(0.0, until - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            until = 0.0  # whoever presses Ctrl-C again wants no more grace
            _signal(worker, signal.SIGKILL)
            worker.wait()


_told: list[int] = []  # signals that asked this process to end


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what was made is removed."""

    def leave(number: int, frame: object) -> None:
        _told.append(number)
        raise SystemExit(128 + number)

    heard = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN
    ]
    _told.clear()
    before = {number: signal.signal(number, leave) for number in heard}  # under nohup one is not
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shared(hosts: Hosts, workers: int, workers_per_host: int) -> dict[str, str]:
    """What all workers are told alike."""
    shaped = isinstance(hosts, Namespaces)
    package = str(Path(__file__).resolve().parents[2])
    return {
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers_per_host),
        "MASTER_ADDR": hosts.address(0) if isinstance(hosts, Namespaces) else "127.0.0.1",
        "MASTER_PORT": "29500" if shaped else str(_free_port()),  # a new namespace has all its ports
        "GLOO_SOCKET_IFNAME": DEVICE if shaped else "lo",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # A namespace has no name service, of which torch would warn at every connection.
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        # The workers import the package that started them, wherever they are.
        "PYTHONPATH": os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", "")))),
    }


def _start(
    words: Sequence[str], environment: Mapping[str, str], log: Path, shown: bool
) -> subprocess.Popen[bytes]:
    """Start a worker in a session of its own: Ctrl-C comes to this process alone, which ends it in order."""
    with log.open("wb") as stream:
        return subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=None if shown else subprocess.DEVNULL,
            stderr=None if shown else stream,
            start_new_session=True,
            preexec_fn=_end_with_parent(),
        )


def _end_with_parent() -> Callable[[], None] | None:
    """Where Linux can, a worker is ended when this process is killed, which could not end it any more."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)  # loaded here: between fork and exec little is allowed

    def ask() -> None:
        libc.prctl(_ENDS_WITH_PARENT, int(signal.SIGKILL))

    return ask


def _wait(workers: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Wait until all have ended well, or one has not: its rank."""
    while True:
        if _told:  # what was raised while a worker was being forked has been lost
            raise SystemExit(128 + _told[0])
        codes = [worker.poll() for worker in workers]
        for rank, code in enumerate(codes):
            if code:
                return rank
        if all(code == 0 for code in codes):
            return None
        time.sleep(_LOOK_SECONDS)


def _signal(worker: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(worker.pid, number)
    except ProcessLookupError:
        worker.poll()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
