"""What a worker has sent, and what its process holds."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch

from hf_decentral.bench.namespaces import sent_bytes
from hf_decentral.optim import Gossip

_BYTES_SENT = slice(200, 208)  # tcpi_bytes_sent in struct tcp_info of linux/tcp.h
_CLEAR_PEAK = "5"  # see clear_refs in proc(5)
# Options of mallopt(3); the large value is the highest to which glibc raises the threshold by itself.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_SMALL, _LARGE = 64 * 1024, 32 * 1024 * 1024


def socket_bytes() -> int:
    """Bytes that this process has sent through the TCP connections it holds, headers not included."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, or no TCP
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_SENT.stop)
                total += int.from_bytes(told[_BYTES_SENT], "little")
    return total


def sent_counter(shaped: bool, local_rank: int, backend: str) -> Callable[[Gossip | None], float | None]:
    """How this worker counts what it sent; over the workers of a host the counts add up to the host's.

    On a shaped host the shaper counts, for worker 0 of the host. Elsewhere gloo's connections do, on Linux.
    Under other backends only our own handle can say it; the count of other variants is then None.
    """
    if shaped:
        return lambda handle: float(sent_bytes()) if local_rank == 0 else 0.0
    if backend == "gloo" and hasattr(socket, "TCP_INFO"):
        return lambda handle: float(socket_bytes())
    return lambda handle: None if handle is None else handle.sent_bytes


class Peak:
    """The most memory that a process holds, above what it held when this was made.

    On the CPU it is the resident set, of which Linux keeps the highest value and can be told to forget it.
    Where it cannot be told, what is held at the end stands for it. On a GPU it is what torch's allocator gave
    out.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        gc.collect()
        with suppress(OSError, AttributeError):  # glibc gives back what it kept for later
            ctypes.CDLL(None).malloc_trim(0)
        self._before = self._held()
        self._forgot = False

    def forget(self) -> None:
        """Begin to look: what was higher before does not count."""
        if self._cuda is not None:
            torch.cuda.reset_peak_memory_stats(self._cuda)
            return
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)
            self._forgot = True

    def above(self) -> int:
        """The highest value since :meth:`forget`, less that at the beginning, in bytes."""
        if self._cuda is not None:
            return torch.cuda.max_memory_allocated(self._cuda) - self._before
        return max(self._held(), _highest() if self._forgot else 0) - self._before

    def _held(self) -> int:
        if self._cuda is not None:
            return torch.cuda.memory_allocated(self._cuda)
        held: int = psutil.Process().memory_info().rss
        return held


@contextmanager
def tensors_in_pages() -> Iterator[None]:
    """Inside, memory that is freed goes back to the system, so that the resident set is what is held.

    Else glibc keeps what was freed for later, more or less of it, and a variant that moves the parameters
    once would seem to hold them twice. Afterwards it keeps as much as it ever would, so that no step pays for
    this.
    """
    libc = ctypes.CDLL(None)
    set_to = getattr(libc, "mallopt", lambda option, value: 0)
    set_to(_MMAP_THRESHOLD, _SMALL)
    try:
        yield
    finally:
        set_to(_MMAP_THRESHOLD, _LARGE)
        set_to(_TRIM_THRESHOLD, 2 * _LARGE)


def _highest() -> int:
    """VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
