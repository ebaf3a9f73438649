"""Several hosts on one machine: network namespaces, joined by a bridge, every link shaped in both directions.

What leaves a host is shaped at its own device and what enters it at the bridge's port, both by a token
bucket (``tc tbf``), so a link is full duplex at its rate. There is neither delay nor loss. All names carry
the number of the process that made them, so that two benchmarks can run at once, and so that what a killed
one left is known: it is removed by the next.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors.bench import namespace_failed, needs_root, no_iproute2

MOST_HOSTS = 250
DEVICE = "eth0"
_PREFIX = "hfd"  # a device's name has 15 characters at most: hfd, up to 7 digits of the process, p, the host
_OURS = re.compile(rf"{_PREFIX}(\d+)(b|[np]\d+)")
_NAMESPACES = Path("/run/netns")
_DEVICES = Path("/sys/class/net")
_COUNT = ("tc", "-statistics", "-json", "qdisc", "show", "dev", DEVICE)
_LATENCY = "200ms"  # what a token bucket lets wait before it drops


class Namespaces:
    """Hosts that exist inside a ``with`` block, and are gone after it however it ends.

    Args:
        rates: the rate of each host's link, such as ``"200mbit"``.

    Raises:
        SettingsError: a rate that is none.
        LaunchError: no root, no iproute2, or a kernel that refuses (on entering).
    """

    def __init__(self, rates: Sequence[str]) -> None:
        self.rates = tuple(rates)
        self.hosts = len(self.rates)
        for rate in self.rates:
            bits_per_second(rate)
        pid = os.getpid()
        self._name = f"{_PREFIX}{pid}"
        # Networks of different runs never meet (each has a bridge of its own); they differ for who looks.
        self._net = f"10.{128 + (pid >> 8) % 128}.{pid % 256}"

    def __enter__(self) -> Namespaces:
        require()
        remove_stale()
        try:
            _run("ip", "link", "add", f"{self._name}b", "type", "bridge")
            _run("ip", "link", "set", f"{self._name}b", "up")
            for host in range(self.hosts):
                self._add(host)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def address(self, host: int) -> str:
        """The address of a host; the others reach it there."""
        return f"{self._net}.{host + 1}"

    def inside(self, host: int, command: Sequence[str]) -> list[str]:
        """The words that run a command inside a host."""
        return ["ip", "netns", "exec", f"{self._name}n{host}", *command]

    def sent_bytes(self, host: int) -> int:
        """Bytes that left a host since it was made; see :func:`sent_bytes`."""
        return _bytes_in(_run(*self.inside(host, _COUNT)))

    def remove(self) -> None:
        """Remove all of it. A second Ctrl-C while this goes on does not leave half of it behind."""
        with _undisturbed():
            _remove([name for name in _existing() if name.startswith((f"{self._name}b", f"{self._name}n"))])
            _remove([name for name in _existing() if name.startswith(f"{self._name}p")])

    def _add(self, host: int) -> None:
        space, port, rate = f"{self._name}n{host}", f"{self._name}p{host}", self.rates[host]
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", space)
        _run("ip", "link", "set", port, "master", f"{self._name}b", "up")
        for words in (
            ("ip", "addr", "add", f"{self.address(host)}/24", "dev", DEVICE),
            ("ip", "link", "set", DEVICE, "up"),
            ("ip", "link", "set", "lo", "up"),
            _shape(DEVICE, rate),
        ):
            _run(*self.inside(host, words))
        _run(*_shape(port, rate))


def require() -> None:
    """See that namespaces can be made at all.

    Raises:
        LaunchError: not root, or ``ip`` or ``tc`` is missing.
    """
    if os.geteuid() != 0:
        raise needs_root()
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise no_iproute2(tool)


def sent_bytes() -> int:
    """Bytes that left the host in which this process runs, as its shaper counts them: every frame in full.

    ``tx_bytes`` of the device would count the headers of many frames once, where the kernel hands them on as
    one.
    """
    return _bytes_in(_run(*_COUNT))


def _bytes_in(told: str) -> int:
    return sum(int(each["bytes"]) for each in json.loads(told))


def remove_stale() -> list[str]:
    """Remove what benchmarks left that were killed (their process is gone); returns the names."""
    stale = []
    for name in _existing():
        found = _OURS.fullmatch(name)
        if found is not None and not Path("/proc", found[1]).exists():
            stale.append(name)
    _remove(stale)
    return stale


def _existing() -> list[str]:
    """Names of namespaces and devices that any benchmark made, namespaces first."""
    folders = [folder for folder in (_NAMESPACES, _DEVICES) if folder.is_dir()]
    return [name for folder in folders for name in sorted(os.listdir(folder)) if _OURS.fullmatch(name)]


def _remove(names: Sequence[str]) -> None:
    """Remove by name; a port goes with its namespace, so one that is gone already is no error."""
    for name in names:
        kind = "netns" if (_NAMESPACES / name).exists() else "link"
        subprocess.run(["ip", kind, "del", name], capture_output=True, start_new_session=True)


def _shape(device: str, rate: str) -> tuple[str, ...]:
    """A token bucket; it holds half a millisecond of the rate, so that fast links are reached too."""
    bits = bits_per_second(rate) or 0.0
    burst = max(64 * 1024, int(bits / 8 / 2000))
    words = ("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{bits:.0f}bit")
    return (*words, "burst", f"{burst}b", "latency", _LATENCY)


def _run(*words: str) -> str:
    """Run a command to its end; Ctrl-C does not reach it, so that nothing is half made."""
    done = subprocess.run(words, capture_output=True, text=True, start_new_session=True)
    if done.returncode:
        raise namespace_failed(" ".join(words), " ".join(done.stderr.split()) or str(done.returncode))
    return done.stdout


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
