"""What a configuration is predicted to do: one row of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hf_decentral.cluster.iteration import Method, Timing, step_seconds, timing
from hf_decentral.cluster.measured import Measured
from hf_decentral.optim.bucket import MOST
from hf_decentral.planner.candidates import PLAIN, Candidate
from hf_decentral.planner.mixing import Mixing, mark, mixing
from hf_decentral.planner.payloads import coding, dtype_of, payload

PIECE = 4 * 2.0**20
"""Bytes of the pieces in which parameters leave, unless that were more than :data:`MOST` of them."""

_HOUR = 3600.0
# Up to so many workers so many steps: three periods of 2^k steps, so that candidates meet the same ones.
_STEPS, _FEWEST = ((8, 96), (32, 48)), 24


@dataclass(frozen=True)
class Row:
    """One configuration.

    Attributes:
        topology: its name; ``"allreduce"``: DistributedDataParallel.
        codec: the averaging method; ``"plain"`` sends parameters (or gradients) as they are.
        step_seconds: of a step.
        low: the same if computing and links were as fast as their uncertainty allows.
        high: as slow.
        limited_by: ``"compute"``, ``"wire"`` or ``"stragglers"``.
        compute_seconds: of the step, what a worker needs that waits for nobody.
        wire_seconds: what exchanges add.
        straggler_seconds: what slow workers and slow steps add.
        speedup_over_allreduce: step of All-Reduce with plain gradients by this one.
        sent_bytes: of a step and a worker.
        throughput: samples a second; steps a second where the batch was not told.
        hours: of all steps.
        cost: of all steps, in the unit of the price.
        rounds_to_consensus: steps that make differences a million times smaller; None: too many.
        spectral_gap: of a step; None: not known.
        mark: what is poor about it, empty where nothing is.
    """

    topology: str
    codec: str
    step_seconds: float
    low: float
    high: float
    limited_by: str
    compute_seconds: float
    wire_seconds: float
    straggler_seconds: float
    speedup_over_allreduce: float
    sent_bytes: float
    throughput: float
    hours: float | None = None
    cost: float | None = None
    rounds_to_consensus: int | None = None
    spectral_gap: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Run:
    """What a run is to do.

    Attributes:
        steps: how many; None: not told.
        global_batch: samples of a step over all workers; None: not told.
        price: of a worker and hour; None: not told.
    """

    steps: int | None = None
    global_batch: float | None = None
    price: float | None = None


def timed(measured: Measured, candidate: Candidate) -> Timing:
    """How long a step of a candidate takes.

    All draws have one seed, so that candidates meet the same slow steps.

    Raises:
        SettingsError: no averaging method has that name.
    """
    return timing(_worked(measured, candidate), method(measured, candidate), _steps(measured))


def seconds(measured: Measured, candidate: Candidate) -> float:
    """The step of :func:`timed` alone, which takes less time to find."""
    return step_seconds(_worked(measured, candidate), method(measured, candidate), _steps(measured))[0]


def _steps(measured: Measured) -> int:
    """Of many workers a few steps tell as much as many steps of a few."""
    return next((steps for workers, steps in _STEPS if measured.workers <= workers), _FEWEST)


def method(measured: Measured, candidate: Candidate) -> Method:
    """A candidate as the event model takes it: All-Reduce as torch does it by default, ours in pieces."""
    plain = candidate.averaging == PLAIN
    coded = None if plain else coding(measured, candidate.averaging)
    if candidate.rounds is None:
        return Method(coding=coded)
    piece = max(PIECE, measured.work.parameter_bytes / MOST)
    return Method(candidate.rounds, coded, bucket_bytes=piece, behind=True)


def _worked(measured: Measured, candidate: Candidate) -> Measured:
    """With more bytes where more vectors than the parameters travel as they are."""
    if candidate.averaging == PLAIN or coding(measured, candidate.averaging) is not None:
        return measured
    share, work = payload(candidate.averaging, dtype_of(measured)).share, measured.work
    longer = replace(
        work, parameter_bytes=share * work.parameter_bytes, combine_seconds=share * work.combine_seconds
    )
    return replace(measured, work=longer)


def changed(measured: Measured, compute: float, wire: float) -> Measured:
    """The cluster off by its uncertainty.

    Args:
        measured: the cluster.
        compute: 1: computing takes as long as it may, -1: as short, 0: as it was measured.
        wire: the same of transfers, each kind of link by its own uncertainty.
    """

    def factor(name: str, sign: float) -> float:
        off = 1 + measured.uncertainty.get(name, 0.0)
        return float(off**sign)

    between = measured.stretched(factor("compute", compute), factor("link", wire))
    inside = measured.stretched(wire=factor("inside", wire)).cluster
    links = replace(between.cluster, inside=inside.inside, inside_latency=inside.inside_latency)
    return replace(between, cluster=links)


def row(measured: Measured, candidate: Candidate, took: Timing, base: float, run: Run) -> Row:
    """The row of a candidate.

    Args:
        measured: the cluster.
        candidate: what is predicted.
        took: its :func:`timed`.
        base: seconds of a step of All-Reduce.
        run: what it is to do.
    """
    low, high = (seconds(changed(measured, off, off), candidate) for off in (-1, 1))
    step, found = took.step_seconds, mixed(measured, candidate)
    hours = None if run.steps is None else run.steps * step / _HOUR
    return Row(
        topology=candidate.topology,
        codec=candidate.averaging,
        step_seconds=step,
        low=min(low, step),
        high=max(high, step),
        limited_by=took.limited_by,
        compute_seconds=took.compute_seconds,
        wire_seconds=took.wire_seconds,
        straggler_seconds=took.straggler_seconds,
        speedup_over_allreduce=base / step,
        sent_bytes=took.sent_bytes,
        throughput=(run.global_batch or 1) / step,
        hours=hours,
        cost=None if hours is None or run.price is None else hours * run.price * measured.workers,
        rounds_to_consensus=found.rounds,
        spectral_gap=found.gap,
        mark=marked(measured, candidate),
    )


def mixed(measured: Measured, candidate: Candidate) -> Mixing:
    """How fast differences between workers vanish; All-Reduce makes none."""
    return Mixing(0, 1.0) if candidate.rounds is None else mixing(candidate.rounds, measured.hosts)


def marked(measured: Measured, candidate: Candidate) -> str:
    """What is poor about a candidate."""
    if candidate.rounds is None:
        return ""
    plain = candidate.averaging == PLAIN
    left = 0.0 if plain else payload(candidate.averaging, dtype_of(measured)).left
    return mark(candidate.rounds, measured.hosts, left)
