"""The worker's side of a calibration: steps, links, and what codes cost, one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from hf_decentral.bench.measure import Trainee
from hf_decentral.bench.settings import Settings as BenchSettings
from hf_decentral.bench.variants import read
from hf_decentral.bench.world import here, join
from hf_decentral.calibration.count import WARMUP_STEPS, enough
from hf_decentral.calibration.progress import Progress
from hf_decentral.calibration.rest import rest
from hf_decentral.calibration.script import watch
from hf_decentral.calibration.settings import Settings
from hf_decentral.calibration.verdict import disturbed, load
from hf_decentral.cluster.describe import describe
from hf_decentral.cluster.handling import METHODS, handling
from hf_decentral.cluster.measured import Measured
from hf_decentral.cluster.probe import naming, probe
from hf_decentral.cluster.stopwatch import Steps, Stopwatch
from hf_decentral.errors.calibration import too_noisy
from hf_decentral.transport.hosts import numbered, place

STEPS, LINKS, CODES, REST = 0.35, 0.3, 0.1, 0.25
"""Shares of the time."""


def measure(settings: Settings, script: Sequence[str]) -> tuple[Measured, bool]:
    """Measure in the run that was launched. Collective.

    Args:
        settings: what to train, for how long.
        script: the user's own with its arguments; empty: the model of the settings.

    Returns:
        What was measured, and whether this is worker 0.

    Raises:
        LaunchError: on every worker, where repeats differ too much; a script that ended too early.
        PeerLost: a worker did not answer.
    """
    first = os.environ.get("RANK", "0") == "0"
    progress = Progress(settings.seconds, first)
    timed = _script if script else _model
    steps, device = timed(settings, script, progress)
    with naming():
        every: list[Steps] = _gather(steps)
        hosts = numbered(_gather(place()))
        loads = _gather(load())
    size = max(each.parameter_bytes for each in every)
    probed = probe(hosts, largest_bytes=size, seconds=LINKS * settings.seconds, progress=progress)
    with naming():
        codes = CODES * settings.seconds
        handlings = _gather(handling(size, device, METHODS, codes, together=lambda: _gather(None)))
    about = {"device": device.type, "torch": torch.__version__}
    found = describe(every, probed, handlings, model=_name(settings, script), about=about)
    if len(every) > 1:
        with naming():
            asleep = _asleep(found, settings) if script else settings.benchmark()
            found = rest(found, asleep, here(hosts, device), REST * settings.seconds, progress)
    progress.close()
    problems = disturbed(every, probed, loads)
    if problems and not settings.force:
        raise too_noisy(problems)
    return found, first


def _model(settings: Settings, script: Sequence[str], progress: Progress) -> tuple[Steps, torch.device]:
    """Steps of a named model, in the way in which the benchmark computes without talking."""
    world = join(settings)
    trainee = Trainee(read("none"), settings.benchmark(), world)
    stopwatch = Stopwatch(cast(Optimizer, trainee.loop.optimizer), trainee.loop.called)
    for number in range(WARMUP_STEPS):
        began = time.perf_counter()
        trainee.step(number)
    wanted = enough(time.perf_counter() - began, STEPS * settings.seconds, world.device)
    progress.skip()
    stopwatch.clear()
    for number in range(WARMUP_STEPS, WARMUP_STEPS + wanted + 1):  # the first one is not timed as a whole
        trainee.step(number)
        progress("steps")
    stopwatch.remove()
    return stopwatch.steps(), world.device


def _script(settings: Settings, script: Sequence[str], progress: Progress) -> tuple[Steps, torch.device]:
    watched = watch(script, STEPS * settings.seconds, progress)
    return watched.steps, watched.device


def _asleep(found: Measured, settings: Settings) -> BenchSettings:
    """In the place of a script that is over: as much to send, and a model that sleeps for as long."""
    return replace(
        settings.benchmark(),
        emulate_ms=1e3 * found.cluster.law.mean,
        emulate_mb=found.work.parameter_bytes / 1e6,
    )


def _name(settings: Settings, script: Sequence[str]) -> str:
    if script:
        return Path(script[script[0] == "-m"]).name
    return f"{settings.emulate_ms:g} ms emulated" if settings.emulate_ms else settings.model


def _gather(value: Any) -> list[Any]:
    """The value of every worker. Collective."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
