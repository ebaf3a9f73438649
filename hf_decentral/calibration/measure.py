"""The worker's side of a calibration: steps, then links, then what codes cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import psutil
import torch
import torch.distributed as dist

from hf_decentral.bench.measure import Trainee
from hf_decentral.bench.variants import read
from hf_decentral.bench.world import STARTED, World, here, join
from hf_decentral.calibration.count import FEWEST_STEPS, WARMUP_STEPS, enough, slowest_seconds
from hf_decentral.calibration.progress import Progress
from hf_decentral.calibration.rest import rest
from hf_decentral.calibration.script import Watched, watch
from hf_decentral.calibration.settings import Settings
from hf_decentral.calibration.verdict import Load, disturbances
from hf_decentral.cluster.describe import describe
from hf_decentral.cluster.handling import Handling, handling
from hf_decentral.cluster.measured import Measured
from hf_decentral.cluster.probe import naming, probe
from hf_decentral.cluster.stopwatch import Steps, Stopwatch
from hf_decentral.errors.calibration import mostly_evaluating
from hf_decentral.integrations import hosts as host_lists
from hf_decentral.integrations import settings as run_settings
from hf_decentral.transport.hosts import Place, numbered, place

STEPS_SHARE, LINKS_SHARE, HANDLING_SHARE, REST_SHARE = 0.35, 0.3, 0.1, 0.25
"""Of the time."""


class Own(NamedTuple):
    """What a worker tells the others."""

    steps: Steps
    handling: Handling
    load: Load


@dataclass(frozen=True)
class Outcome:
    """What was measured, the same on every worker.

    Attributes:
        measured: all of it.
        disturbed: what differed too much from repeat to repeat; empty: nothing.
    """

    measured: Measured
    disturbed: list[str] = field(default_factory=list)


def measure(settings: Settings, script: Sequence[str]) -> Outcome:
    """Measure the run that a launcher has started. Collective.

    Args:
        settings: for how long, and what trains where there is no script.
        script: the user's script with its arguments; empty: the workload of the settings.

    Raises:
        DecentralizedError: it cannot be measured.
    """
    load = Load.now()
    shown = os.environ.get("RANK", "0") == "0"
    progress = Progress(settings.seconds, shown)
    try:
        if script:
            # Not named: an error of the wire in the script's own words stays as it is.
            watched = watch(script, STEPS_SHARE * settings.seconds, progress)
            with naming():
                found = _all(settings, watched, script[script[0] == "-m"], load, progress)
                return _with_rest(found, settings, here(found.measured.hosts, watched.device), progress)
        world = join(settings)
        with naming():
            watched = _trained(settings, world, progress)
            found = _all(settings, watched, _what(settings), load, progress)
            return _with_rest(found, settings, world, progress, trains=True)
    finally:
        progress.close()
        if dist.is_initialized():
            dist.destroy_process_group()


def _trained(settings: Settings, world: World, progress: Progress) -> Watched:
    """The steps of a named model, or of an emulated accelerator, which talk to nobody."""
    trainee = Trainee(read("none"), settings.benchmark(), world)
    # The row of the table makes one that steps by itself.
    optimizer: Any = trainee.loop.optimizer
    watch = Stopwatch(optimizer, trainee.loop.called)
    for number in range(WARMUP_STEPS):
        trainee.step(number)
    records = watch.records
    own = sum(each.compute_seconds + each.local_seconds for each in records) / len(records)
    count = enough(slowest_seconds(own, world.device), STEPS_SHARE * settings.seconds)
    progress.skip()
    watch.clear()
    for number in range(count + 1):  # the first one has no beginning
        trainee.step(number)
        progress("steps")
    watch.remove()
    return Watched(watch.steps(), world.device)


def _all(settings: Settings, watched: Watched, what: str, load: Load, progress: Progress) -> Outcome:
    """The links and the codes, and then everything together."""
    workers = dist.get_world_size() if dist.is_initialized() else 1
    places: list[Place] = _gather(place(), workers)
    _check_timed(watched.steps, workers)
    size = watched.steps.parameter_bytes
    probed = probe(
        _hosts(places), largest_bytes=size, seconds=LINKS_SHARE * settings.seconds, progress=progress
    )
    cost = handling(
        size,
        watched.device,
        seconds=HANDLING_SHARE * settings.seconds,
        together=lambda: _gather(None, workers),
    )
    progress("codes")
    own: list[Own] = _gather(Own(watched.steps, cost, load), workers)
    about = {
        "device": _device(watched.device),
        "machines": sorted({name for name, _ in places}),
        "load": [each.load.share for each in own],
    }
    measured = describe(
        [each.steps for each in own], probed, [each.handling for each in own], model=what, about=about
    )
    steps = [each.steps for each in own]
    return Outcome(measured, disturbances(steps, probed, measured, [each.load for each in own]))


def _check_timed(steps: Steps, workers: int) -> None:
    """See on every worker that all have timed enough steps."""
    counts: list[int] = _gather(len(steps.compute_seconds), workers)
    lacking = [worker for worker, timed in enumerate(counts) if timed < FEWEST_STEPS]
    if lacking:
        raise mostly_evaluating(lacking, FEWEST_STEPS)


def _with_rest(
    found: Outcome, settings: Settings, world: World, progress: Progress, trains: bool = False
) -> Outcome:
    """The same with what real steps take longer: those of the workload, or of a model in the place of the
    script that is over, which sleeps for as long as this worker computes and has as much to send."""
    workload, measured = settings.benchmark(), found.measured
    if not trains:
        numbers = measured.work.parameter_bytes / 1e6
        seconds = measured.cluster.law.mean * measured.cluster.slow.get(world.worker, 1.0)
        workload = replace(workload, emulate_ms=1e3 * seconds, emulate_mb=numbers)
    return replace(found, measured=rest(measured, workload, world, REST_SHARE * settings.seconds, progress))


def _hosts(places: Sequence[Place]) -> tuple[int, ...]:
    """The host of each worker: as the launch file says it, or as it is."""
    told = None if STARTED in os.environ else run_settings.resolve({}).hosts
    return numbered(places) if told is None else host_lists.numbers(told, len(places))


def _gather(value: Any, workers: int) -> list[Any]:
    if workers == 1:
        return [value]
    found: list[Any] = [None] * workers
    dist.all_gather_object(found, value)
    return found


def _what(settings: Settings) -> str:
    if settings.emulate_ms:
        return f"{settings.emulate_ms:g} ms emulated, {settings.emulate_mb:g} MB"
    return f"{settings.model}, {settings.batch_size} x {settings.block_size}"


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"cpu, {psutil.cpu_count()} cores"
