"""What a worker has sent, and what its process holds."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import torch

from hf_decentral.bench.namespaces import DEVICE
from hf_decentral.optim import Gossip

_TX_BYTES = Path("/sys/class/net") / DEVICE / "statistics" / "tx_bytes"
_BYTES_SENT = slice(200, 208)  # tcpi_bytes_sent in struct tcp_info of linux/tcp.h
_CLEAR_PEAK = "5"  # see clear_refs in proc(5)


def device_bytes() -> int:
    """Bytes that left this host's network device, headers included."""
    return int(_TX_BYTES.read_text())


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

    On a shaped host the device counts, for worker 0 of the host. Elsewhere gloo's connections do, on Linux.
    Under other backends only our own handle can say it; the count of other variants is then None.
    """
    if shaped:
        return lambda handle: float(device_bytes()) if local_rank == 0 else 0.0
    if backend == "gloo" and hasattr(socket, "TCP_INFO"):
        return lambda handle: float(socket_bytes())
    return lambda handle: None if handle is None else handle.sent_bytes


class Peak:
    """The most memory that this process has held since :meth:`reset`, above what it held then.

    On the CPU it is the resident set: Linux is told to forget its highest value, and what the allocator keeps
    for later is given back before. Where it cannot be told, what is held at the end stands for it. On a GPU
    it is what torch's allocator has given out.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._before = 0
        self._forgot = False

    def reset(self) -> None:
        """Begin anew."""
        gc.collect()
        if self._cuda is not None:
            torch.cuda.reset_peak_memory_stats(self._cuda)
            self._before = torch.cuda.memory_allocated(self._cuda)
            return
        with suppress(OSError, AttributeError):  # glibc has it
            ctypes.CDLL(None).malloc_trim(0)
        self._forgot = False
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)
            self._forgot = True
        self._before = psutil.Process().memory_info().rss

    def above(self) -> int:
        """The highest value above that at the reset, in bytes."""
        if self._cuda is not None:
            return torch.cuda.max_memory_allocated(self._cuda) - self._before
        held: int = psutil.Process().memory_info().rss
        return max(held, _highest() if self._forgot else 0) - self._before


def _highest() -> int:
    """VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
