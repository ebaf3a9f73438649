"""What the first steps of a run and a short probe tell of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from hf_decentral.cluster.describe import describe
from hf_decentral.cluster.measured import Measured
from hf_decentral.cluster.probe import probe
from hf_decentral.cluster.stopwatch import Steps
from hf_decentral.integrations.trial import Trial

PROBE_STEPS = 3.0
"""Steps for whose time the links may be probed: a three hundredth part of a run of 1,000 steps."""

PROBE_SECONDS = 0.3, 5.0
"""The least and the most that a probe takes."""


def measure(trial: Trial, hosts: tuple[int, ...]) -> Callable[[], Measured]:
    """Probe the links, and put together what all workers have timed. Collective.

    Args:
        trial: the optimizer whose steps were timed.
        hosts: the host of each worker.

    Returns:
        A function that describes the cluster; it raises a SettingsError where nothing fits what was timed.

    Raises:
        PeerLost: a worker did not answer.
    """
    every: list[Steps] = trial.handle.transport.gather(trial.timed())
    least, most = PROBE_SECONDS
    seconds = min(max(PROBE_STEPS * _step(every), least), most)
    probed = probe(hosts, largest_bytes=trial.size, seconds=seconds)
    return partial(describe, every, probed)


def _step(every: Sequence[Steps]) -> float:
    """The time of a step of the slowest worker, in seconds; 0 where none was timed."""
    taken = [
        median(each.compute_seconds) + median(each.local_seconds) for each in every if each.compute_seconds
    ]
    return max(taken, default=0.0)
