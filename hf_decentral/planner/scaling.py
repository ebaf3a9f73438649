"""Step times of some topologies over the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hf_decentral import topology as topologies
from hf_decentral.cluster.iteration import step_seconds
from hf_decentral.cluster.measured import Measured
from hf_decentral.planner.assumed import per_host
from hf_decentral.planner.candidates import ALLREDUCE, PLAIN, Candidate
from hf_decentral.planner.predict import method

CURVES = (ALLREDUCE, "complete", "aer", "hierarchical", "base_graph", "one_peer_exponential", "ring")
MOST = 4096
_STEPS = 24


class Point(NamedTuple):
    """One step time.

    Attributes:
        topology: its name.
        workers: how many.
        step_seconds: of a step.
        efficiency: the step of a single worker by this one.
    """

    topology: str
    workers: int
    step_seconds: float
    efficiency: float


def scaling(measured: Measured, most: int = MOST, curves: Sequence[str] = CURVES) -> list[Point]:
    """Predictions for 1, 2, 4, ... times as many hosts, with as many workers on each as the first has.

    Links, compute times and the factor of collectives stay what they are, so that the network is one whose
    core takes what all hosts send (no oversubscription). Slow workers keep their numbers.

    Args:
        measured: the cluster.
        most: workers up to which.
        curves: names of topologies, ``"allreduce"`` among them.
    """
    each = per_host(measured)[0]
    alone = measured.cluster.law.mean + measured.work.local_seconds
    points, hosts = [], 1
    while hosts * each <= most:
        grown = _grown(measured, hosts, each)
        for name in curves if grown.workers > 1 else ():
            rounds = None if name == ALLREDUCE else topologies.build(name, grown.workers, grown.hosts)
            seconds, _ = step_seconds(grown, method(grown, Candidate(name, PLAIN, rounds)), _STEPS)
            points.append(Point(name, grown.workers, seconds, alone / seconds))
        hosts *= 2
    return points


def _grown(measured: Measured, hosts: int, each: int) -> Measured:
    numbers = tuple(host for host in range(hosts) for _ in range(each))
    slow = {worker: factor for worker, factor in measured.cluster.slow.items() if worker < len(numbers)}
    return replace(
        measured, workers=len(numbers), cluster=replace(measured.cluster, hosts=numbers, slow=slow)
    )
