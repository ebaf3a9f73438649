"""The time of training steps, event by event: forward, backward, buckets on the wire, averages, local step.

Two ways to talk. *Behind the step* (adapt while combine): the exchange of ``x(t)`` begins with the step and
hides behind all of forward and backward; then its pieces are averaged and stepped one after the other while
the next ones arrive. *Inside backward* (an All-Reduce of gradients under DistributedDataParallel, or an
average that needs the neighbours' present gradients): each bucket leaves when backward has made its last
gradient.

With ``c_i(t)`` the compute time of worker ``i``, ``E_i`` the arrival of what it hears (begun when the last of
those that exchange is ready) and ``h`` the averaging and stepping of one of ``m`` pieces, a step behind takes

    T_i(t+1) = max(T_i(t) + c_i(t) + m h, E_i(first piece) + m h, E_i(last piece) + h)

which is linear in max and plus. The derivation is ours; the published runtime model (arXiv 2410.11998,
appendix A.5) was not at hand. Kernels of the exchange that slow the computing are left out: real overlap is
at most as good as this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hf_decentral.cluster.draws import Vector
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.links import Costs, Links
from hf_decentral.cluster.measured import Coding, Measured, Work
from hf_decentral.errors import out_of_range
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.topology.shards import sharded

MIB = 2.0**20
DDP_FIRST, DDP_BUCKET = 1 * MIB, 25 * MIB
"""Sizes at which DistributedDataParallel closes its first bucket and the others, by default."""

_HALF = 0.5  # a byte: whole ones that fill a bucket exactly do so although they come as rounded shares


@dataclass(frozen=True)
class Method:
    """How workers keep together.

    Attributes:
        topology: who averages with whom; None: an All-Reduce of the gradients.
        coding: what is sent in the place of the parameters; None: themselves.
        bucket_bytes: about the size of what is exchanged as one.
        behind: the exchange hides behind the whole step; False: behind backward alone.
    """

    topology: Topology | None = None
    coding: Coding | None = None
    bucket_bytes: float = DDP_BUCKET
    behind: bool = False


class Timing(NamedTuple):
    """What the steps of a run take.

    Attributes:
        step_seconds: of a step, the mean over the steps.
        compute_seconds: of those, what a worker of usual speed needs if it waits for nobody.
        wire_seconds: what the exchanges add, if all compute for their mean times.
        straggler_seconds: what slow workers and slow steps add.
        sent_bytes: of a step and a worker, the mean over both.
    """

    step_seconds: float
    compute_seconds: float
    wire_seconds: float
    straggler_seconds: float
    sent_bytes: float

    @property
    def limited_by(self) -> str:
        """``"compute"``, ``"wire"`` or ``"stragglers"``: what adds most, if anything adds a twentieth."""
        if self.step_seconds <= 1.05 * self.compute_seconds:
            return "compute"
        return "wire" if self.wire_seconds >= self.straggler_seconds else "stragglers"


class Iteration:
    """The steps of workers that all train in one way.

    Args:
        cluster: compute times and links.
        work: the rest of a step.
        method: how they keep together.
        workers: number of workers, ``W``.
        seed: of the compute times.
    """

    def __init__(self, cluster: Cluster, work: Work, method: Method, workers: int, seed: int = 0) -> None:
        cluster.check(workers)
        self._cluster, self._work, self._method, self._seed = cluster, work, method, seed
        self._workers = workers
        self._links = Links(cluster, workers)
        self._shards = {} if method.topology is None else sharded(method.topology)
        self._costs: dict[int, tuple[Round, Costs]] = {}
        self._buckets = buckets(work, method.bucket_bytes)
        self._lanes = max(1, round(work.parameter_bytes / method.bucket_bytes))
        self.sent_bytes = 0.0

    def ends(self, steps: int) -> Vector:
        """When each worker ends each of its steps, ``[steps + 1, W]`` in seconds; all begin at 0."""
        if steps < 1:
            raise out_of_range("steps", steps, "1 or more", "take a few periods of the topology")
        found = np.zeros((steps + 1, self._workers))
        begun = found[0]  # when each worker's present exchange began: before it began to compute
        self.sent_bytes = 0.0
        for step in range(steps):
            computing = self._cluster.seconds(self._workers, step, self._seed)
            if self._method.behind:
                found[step + 1], begun = self._behind(step, found[step], begun, computing)
            else:
                found[step + 1] = self._inside(step, found[step], computing)
        self.sent_bytes /= steps
        return found

    def _behind(self, step: int, at: Vector, begun: Vector, computing: Vector) -> tuple[Vector, Vector]:
        """When the step ends, and when all pieces but the last had left for the next exchange."""
        work, lanes = self._work, self._lanes
        computed, local = at + computing, work.local_seconds / lanes
        costs = self._costs_of(step)
        if costs is None:
            return (ended := computed + work.local_seconds), ended
        coding, copies = self._method.coding, costs.heard
        after = work.combine_seconds * copies if coding is None else coding.after_seconds
        each = after / lanes + local
        computed = computed + self._drag(costs)
        first, last = self._arrivals(costs, begun)
        left = np.maximum(np.maximum(computed, first) + (lanes - 1) * each, last + self._drag(costs))
        return left + each, left if lanes > 1 else left + each

    def _arrivals(self, costs: Costs, begun: Vector) -> tuple[Vector, Vector]:
        """When the first piece of what a worker hears has arrived, and the last one."""
        size, coding, lanes = self._work.parameter_bytes, self._method.coding, self._lanes
        if coding is not None:
            # One thread encodes a piece, sends it, waits and decodes before it turns to the next.
            ready = begun + coding.before_seconds + (costs.heard - 1) * coding.after_seconds
            last = costs.arrivals(ready, size * coding.payload)
            return last, last
        return costs.arrivals(begun, size / lanes), costs.arrivals(begun, size)

    def _inside(self, step: int, at: Vector, computing: Vector) -> Vector:
        """When the step ends, its buckets having left one after the other during backward."""
        work, coding = self._work, self._method.coding
        computed = at + computing
        costs = self._costs_of(step)
        if costs is None:
            return computed + work.local_seconds
        backward = (1 - work.forward_share) * computing
        free = np.full_like(at, -np.inf)
        payload = 1.0 if coding is None else coding.payload
        for time, share in self._buckets:
            ready = np.maximum(computed - (1 - time) * backward, free)
            free = costs.arrivals(ready, share * work.parameter_bytes * payload)
        coded = 0.0 if coding is None else coding.before_seconds + coding.after_seconds
        drag = work.reduce_seconds * payload if self._method.topology is None else self._drag(costs)
        return np.maximum(computed, free) + coded + drag + work.combine_seconds + work.local_seconds

    def _drag(self, costs: Costs) -> Vector:
        """What the messages of a round take from the computing of each worker, ``[W]``."""
        payload = 1.0 if self._method.coding is None else self._method.coding.payload
        longer: Vector = self._work.drag_seconds * payload * costs.sent
        return longer

    def _costs_of(self, step: int) -> Costs | None:
        """What the round of a step costs; None where nobody talks."""
        topology, coding = self._method.topology, self._method.coding
        if self._workers == 1:
            return None
        if topology is None:
            key, round = -1, None
        else:
            round = topology(step)
            key = id(round)
            if round.idle:
                return None
        if key not in self._costs:
            coded = coding is not None and topology is not None
            shards = self._shards.get(round.key) if round is not None and self._shards else None
            costs = self._links.together() if round is None else self._links.costs(round, coded, shards)
            # The round is kept beside its costs, so that its identity stays its own.
            self._costs[key] = round or Round.identity(self._workers), costs
        costs = self._costs[key][1]
        self.sent_bytes += costs.copies * self._work.parameter_bytes * (coding.payload if coding else 1.0)
        return costs


def buckets(work: Work, size: float = DDP_BUCKET) -> list[tuple[float, float]]:
    """The buckets of DistributedDataParallel: when each is full, as a share of backward, its share of bytes.

    A bucket closes with the gradient that fills it: the first at 1 MiB, the others at ``size``.
    """
    found: list[tuple[float, float]] = []
    held, limit = 0.0, min(DDP_FIRST, size)
    for time, share in work.pieces:
        held += share
        if held * work.parameter_bytes >= limit - _HALF:
            found.append((time, held))
            held, limit = 0.0, size
    if held > 0:
        found.append((work.pieces[-1][0], held))
    return found


def timing(measured: Measured, method: Method, steps: int = 96, seed: int = 0) -> Timing:
    """What a step takes, and what of it is due to what.

    The first third of the steps, in which slow ones have not yet reached everybody, is not counted.

    Args:
        measured: the cluster and the work.
        method: how workers keep together.
        steps: how many to run; more are run where the period of the topology is longer.
        seed: of the compute times; two methods of one seed meet the same slow steps.
    """
    cluster, work, workers = measured.cluster, measured.work, measured.workers
    mean = cluster.law.mean
    even = replace(cluster, compute=f"{mean:.12g}", correlation=0.0)
    compute = mean + work.local_seconds
    slowest = mean * max((cluster.slow.get(i, 1.0) for i in range(workers)), default=1.0) + work.local_seconds
    whole, sent_bytes = step_seconds(measured, method, steps, seed)
    steady = whole
    if cluster.law.kind != "constant":
        steady, _ = step_seconds(replace(measured, cluster=even), method, min(steps, 24), seed)
    wire = max(0.0, steady - slowest)
    return Timing(whole, compute, wire, max(0.0, whole - compute - wire), sent_bytes)


def step_seconds(measured: Measured, method: Method, steps: int = 96, seed: int = 0) -> tuple[float, float]:
    """The first and the last number of :func:`timing` alone: what a step takes, and the bytes of it."""
    iteration = Iteration(measured.cluster, measured.work, method, measured.workers, seed)
    steps = _steps(method, steps)
    ends: Sequence[float] = iteration.ends(steps).max(axis=1)
    skipped = steps // 3
    return float(ends[-1] - ends[skipped]) / (steps - skipped), iteration.sent_bytes


def _steps(method: Method, steps: int) -> int:
    """At least three periods, so that two of them are counted."""
    period = method.topology.period if method.topology is not None else 1
    return steps if period is None else 3 * period * max(1, -(-steps // (3 * period)))
