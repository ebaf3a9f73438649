"""Whether a measurement was left in peace, and if not, what disturbed it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil

from hf_decentral.cluster.describe import lines
from hf_decentral.cluster.lines import Line
from hf_decentral.cluster.probe import Probed
from hf_decentral.cluster.stopwatch import Steps

COMPUTE, LINK = 0.25, 0.3
"""How far the quartiles of a worker's steps, and of the repeats of a message, may lie apart, as a share of
their median."""

SLOW_HOST = 0.7
"""Of the rate of the median host: below it a host is named."""

_MANY = 0.1  # processes that want a core, beyond the workers, for each core


class Load(NamedTuple):
    """How busy a worker's host was in the last minute.

    Attributes:
        waiting: processes that were running or wanted to.
        cores: of the host.
    """

    waiting: float
    cores: int


def load() -> Load:
    """Of this host."""
    return Load(psutil.getloadavg()[0], psutil.cpu_count() or 1)


def disturbed(steps: Sequence[Steps], probed: Probed, loads: Sequence[Load]) -> list[str]:
    """What differs too much from one repeat to the next, in words; empty where all is well.

    Args:
        steps: of each worker, ``[W]``.
        probed: the links.
        loads: of each worker's host, ``[W]``.
    """
    found = []
    for worker, each in enumerate(steps):
        low, high = np.quantile(each.compute_seconds, (0.25, 0.75))
        spread = float(high - low) / median(each.compute_seconds)
        if spread > COMPUTE:
            busy = _busy(worker, probed, loads)
            found.append(f"the quartiles of worker {worker}'s steps are {spread:.0%} apart{busy}")
    names = {"link": "between hosts", "inside": "inside hosts"}
    for name, line in lines(probed).items():
        if line.spread > LINK:
            slow = _slow(line)
            found.append(f"repeats of messages {names[name]} are {line.spread:.0%} apart{slow}")
    return found


def _busy(worker: int, probed: Probed, loads: Sequence[Load]) -> str:
    """The load of its host, where more wanted its cores than the workers there."""
    host = probed.hosts[worker]
    waiting, cores = loads[worker]
    own = probed.hosts.count(host)
    if waiting - own < _MANY * cores:
        return ""
    return f" (host {host} had {waiting:.1f} running processes on {cores} cores, of which {own} are workers)"


def _slow(line: Line) -> str:
    usual = median(line.rates)
    slow = [host for host, rate in enumerate(line.rates) if rate < SLOW_HOST * usual]
    return f", slowest at host{'s' if len(slow) > 1 else ''} {', '.join(map(str, slow))}" if slow else ""
