"""Whether repeats agree well enough, and what disturbed them where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil

from hf_decentral.cluster.describe import lines
from hf_decentral.cluster.lines import Line
from hf_decentral.cluster.measured import Measured
from hf_decentral.cluster.probe import Probed
from hf_decentral.cluster.stopwatch import Steps

STEP_SPREAD = 0.25
"""How far the quartiles of a worker's compute times may be apart, relative to their median."""
LINK_SPREAD = 0.30
"""The same of the repeats of one message."""
IRRELEVANT = 0.02
"""Of a step: an uncertainty on the wire below this changes no plan."""
ODD_RATE = 0.8
"""A host below this share of the others' rate is named."""
HIGH_LOAD = 0.5
"""Processes that want to run, for each core, before the measurement began."""
_BITS = 8
_NAMES = {"link": "links between hosts", "inside": "links inside hosts"}


class Load(NamedTuple):
    """What else a machine does.

    Attributes:
        share: processes that want to run, for each core, over the last minute.
    """

    share: float

    @classmethod
    def now(cls) -> Load:
        """That of this machine."""
        return cls(psutil.getloadavg()[0] / (psutil.cpu_count() or 1))


def disturbances(
    steps: Sequence[Steps], probed: Probed, measured: Measured, loads: Sequence[Load]
) -> list[str]:
    """What differed too much from repeat to repeat, one text each; empty: nothing.

    Args:
        steps: of each worker.
        probed: the links.
        measured: what was made of them.
        loads: of each worker's machine, as it was before.
    """
    found = []
    for worker, each in enumerate(steps):
        spread = _spread(each.compute_seconds)
        if spread > STEP_SPREAD:
            found.append(
                f"worker {worker} took {_ms(min(each.compute_seconds))} to {_ms(max(each.compute_seconds))} "
                f"to compute a step (quartiles {spread:.0%} apart, at most {STEP_SPREAD:.0%}"
                f"{_loaded(loads[worker])})"
            )
    step = measured.cluster.law.mean
    for name, line in lines(probed).items():
        seconds = measured.work.parameter_bytes * _BITS / line.bits_per_second
        if line.spread > LINK_SPREAD and line.spread * seconds > IRRELEVANT * step:
            found.append(
                f"{_NAMES[name]} repeated a message with quartiles {line.spread:.0%} apart "
                f"(at most {LINK_SPREAD:.0%}{_odd(line)}{_loaded(max(loads))})"
            )
    return found


def odd_hosts(line: Line) -> dict[int, float]:
    """Hosts that are much slower than the others, and their share of the others' rate."""
    middle = median([each for each in line.rates if each > 0] or [0.0])  # 0: it has no such link
    return {host: each / middle for host, each in enumerate(line.rates) if 0 < each < ODD_RATE * middle}


def _spread(seconds: Sequence[float]) -> float:
    low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def _odd(line: Line) -> str:
    told = [f"host {host} has {share:.0%} of the others' rate" for host, share in odd_hosts(line).items()]
    return "".join(f"; {each}" for each in told)


def _loaded(load: Load) -> str:
    high = load.share > HIGH_LOAD
    return f"; its host had {load.share:.1f} processes a core to run before" if high else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
