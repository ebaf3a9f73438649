"""What the first steps of a run and a short probe tell of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from hf_decentral.cluster.describe import describe
from hf_decentral.cluster.handling import Handling, handling
from hf_decentral.cluster.measured import Measured
from hf_decentral.cluster.probe import probe
from hf_decentral.cluster.stopwatch import Steps
from hf_decentral.errors.auto import nothing_timed
from hf_decentral.integrations.trial import Trial

PROBE_STEPS, HANDLING_STEPS = 3.0, 1.0
"""Steps for whose time links are probed and codes are timed: below a hundredth of a run of 1,000 steps."""

PROBE_SECONDS, HANDLING_SECONDS = (0.3, 5.0), (0.1, 2.0)
"""The least and the most that they take; steps of milliseconds would leave too little to measure anything."""

HANDLED_BYTES = 12_000_000
"""Parameters that are encoded for it, of which all of a larger model take a multiple."""


def measure(trial: Trial, hosts: tuple[int, ...], methods: Sequence[str]) -> Callable[[], Measured]:
    """Probe the links, time the codes, and gather what the workers have timed. Collective.

    Args:
        trial: the optimizer whose steps were timed.
        hosts: the host of each worker.
        methods: the averaging methods whose codes are timed.

    Returns:
        A function that describes the cluster; it raises a SettingsError where a worker has timed nothing.

    Raises:
        PeerLost: a worker did not answer.
    """
    wire = trial.handle.transport
    steps: list[Steps] = wire.gather(trial.timed())
    step = _seconds(steps)
    probed = probe(hosts, largest_bytes=trial.size, seconds=_within(PROBE_STEPS * step, PROBE_SECONDS))
    budget, some = _within(HANDLING_STEPS * step, HANDLING_SECONDS), min(trial.size, HANDLED_BYTES)
    timed = handling(some, trial.device, methods, budget, together=lambda: wire.gather(None))
    handlings: list[Handling] = wire.gather(_of_all(timed, trial.size / some))
    lacking = [worker for worker, each in enumerate(steps) if not each.compute_seconds]
    if lacking:
        return partial(_refuse, lacking)
    return partial(describe, steps, probed, handlings)


def _seconds(steps: Sequence[Steps]) -> float:
    """A step of the slowest worker; 0 where none was timed."""
    timed = [each for each in steps if each.compute_seconds]
    return max((median(each.compute_seconds) + median(each.local_seconds) for each in timed), default=0.0)


def _of_all(some: Handling, factor: float) -> Handling:
    """What all parameters take, where some of them were handled."""
    codings = {
        name: replace(
            coding,
            before_seconds=factor * coding.before_seconds,
            after_seconds=factor * coding.after_seconds,
        )
        for name, coding in some.codings.items()
    }
    return Handling(factor * some.combine_seconds, codings)


def _within(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


def _refuse(workers: Sequence[int]) -> Measured:
    raise nothing_timed(workers)
