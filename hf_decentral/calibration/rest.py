"""What the model of a step leaves out, measured: a few steps of the engine, and of an All-Reduce.

Messages take processors and memory from the computing, threads wait for each other, a library copies: none of
that is in the formulas, and on hosts without cores to spare it is a tenth of a step. What real steps take
longer than they are predicted to goes into the predictions of all others, by the bytes that they send.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import Any

from hf_decentral import topology
from hf_decentral.bench.measure import Trainee
from hf_decentral.bench.settings import Settings
from hf_decentral.bench.variants import read
from hf_decentral.bench.world import World
from hf_decentral.calibration.progress import Progress
from hf_decentral.cluster.iteration import Method, step_seconds
from hf_decentral.cluster.measured import Measured
from hf_decentral.planner.predict import PIECE

TOPOLOGY = "one_peer_exponential"
"""In every step every worker sends one copy of its parameters."""

_WARM_UP, _FEWEST, _MOST = 3, 4, 24


def rest(
    measured: Measured, settings: Settings, world: World, seconds: float, progress: Progress
) -> Measured:
    """The same, with what a few real steps take longer. Collective.

    Args:
        measured: the cluster, with no rest yet.
        settings: what to train.
        world: with whom.
        seconds: about how long it may take.
        progress: told after each step.
    """
    if measured.workers == 1:
        return measured
    rounds = topology.build(TOPOLOGY, measured.workers, measured.hosts)
    ours = Method(rounds, bucket_bytes=PIECE, behind=True)
    found: dict[str, float] = {}
    for name, variant, method in (("drag_seconds", TOPOLOGY, ours), ("reduce_seconds", "ddp", Method())):
        predicted, _ = step_seconds(measured, method)
        steps = int(min(max(seconds / 2 / predicted - _WARM_UP, _FEWEST), _MOST))
        steps += -steps % (rounds.period or 1)
        took = _step(variant, settings, world, steps, progress)
        found[name] = max(0.0, took - predicted)
    changes: dict[str, Any] = found
    return replace(measured, work=replace(measured.work, **changes))


def _step(variant: str, settings: Settings, world: World, steps: int, progress: Progress) -> float:
    """Seconds of a step of the slowest worker, the median over the steps. Collective."""
    trainee = Trainee(read(variant), settings, world)
    times = []
    for number in range(_WARM_UP + steps):
        began = time.perf_counter()
        trainee.step(number)
        times.append(time.perf_counter() - began)
        progress("steps with messages")
    trainee.loop.settle()
    return float(max(world.gather(median(times[_WARM_UP:]))))
