"""A plan: all configurations beside each other, and which one to take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_decentral.cluster.iteration import Timing
from hf_decentral.cluster.measured import Measured
from hf_decentral.errors import out_of_range
from hf_decentral.planner.advise import Choice, Recommendation, best, decentralized, leave, stay
from hf_decentral.planner.candidates import ALLREDUCE, PLAIN, Candidate, candidates
from hf_decentral.planner.predict import Row, Run, changed, marked, mixed, row, seconds, timed


@dataclass(frozen=True)
class Plan:
    """All configurations that were compared.

    Attributes:
        rows: the fastest first; All-Reduce is among them.
        recommendation: which one to take.
        left_out: what was asked for and cannot be, with the reason.
    """

    rows: list[Row]
    recommendation: Recommendation
    left_out: Mapping[str, str] = field(default_factory=dict)


def plan(
    measured: Measured,
    *,
    topologies: Sequence[str] | None = None,
    averagings: Sequence[str] | None = None,
    steps: int | None = None,
    global_batch: float | None = None,
    price: float | None = None,
) -> Plan:
    """Predict the step time of All-Reduce and of decentralized configurations, and recommend one.

    Args:
        measured: the cluster, as calibrated (:func:`hf_decentral.cluster.measured.read`) or as assumed
            (:func:`hf_decentral.planner.assumed.assumed`).
        topologies: compare these only, beside All-Reduce; None: those worth naming.
        averagings: compare these averaging methods only; None: plain, bf16, int8, int4 and those measured.
        steps: of the run, for its hours.
        global_batch: samples of a step over all workers, for the throughput.
        price: of a worker and hour, for the cost.

    Raises:
        SettingsError: a name that does not exist, or a number out of range.
    """
    for name, value in (("steps", steps), ("global_batch", global_batch)):
        if value is not None and not 0 < value < math.inf:
            raise out_of_range(name, value, "a number above 0", "leave it out if it is not known")
    if price is not None and not 0 <= price < math.inf:
        raise out_of_range("price", price, "money per worker and hour, 0 or more", "leave it out")
    found, run = candidates(measured, topologies, averagings), Run(steps, global_batch, price)
    took = [timed(measured, each) for each in found.found]
    base = took[0].step_seconds
    made = [row(measured, each, one, base, run) for each, one in zip(found.found, took, strict=True)]
    advice = _advice(measured, list(zip(found.found, made, strict=True)))
    return Plan(sorted(made, key=lambda each: each.step_seconds), advice, found.left_out)


def _advice(measured: Measured, rows: Sequence[tuple[Candidate, Row]]) -> Recommendation:
    if measured.workers == 1:
        return Recommendation(ALLREDUCE, PLAIN, "one worker has nobody to average with: train plainly", 1.0)
    kept = best([row for _, row in rows if row.topology == ALLREDUCE])
    others = [row for _, row in rows if row.topology != ALLREDUCE]
    if not others:
        return stay(kept, None, None) or leave(kept, kept, 1.0)
    other = best(others)
    of = {id(row): candidate for candidate, row in rows}
    worst = _worst(measured, of[id(kept)], of[id(other)])
    return stay(kept, other, worst) or leave(kept, other, worst)


def _worst(measured: Measured, kept: Candidate, other: Candidate) -> float:
    """The least factor by which the other is faster, where computing and transfers are off by their
    uncertainty in any way: both methods meet the same cluster."""
    clusters = [changed(measured, compute, wire) for compute in (-1, 1) for wire in (-1, 1)]
    return min(seconds(each, kept) / seconds(each, other) for each in clusters)


def choose(
    measured: Measured,
    *,
    topologies: Sequence[str] | None = None,
    averagings: Sequence[str] | None = None,
) -> Choice:
    """The best decentralized configuration: what ``topology="auto"`` takes. A pure function of its arguments.

    All-Reduce of gradients is not among them, since a run that gossips cannot go back to it; ``complete``,
    the mean of all parameters in every step, stands in for it.

    Args:
        measured: the cluster.
        topologies: choose among these; None: those worth naming.
        averagings: choose among these averaging methods; None: plain, bf16, int8, int4 and those measured.

    Raises:
        SettingsError: a name that does not exist.
    """
    if measured.workers == 1:
        return Choice("complete", PLAIN, "one worker has nobody to average with", 1.0)
    found = candidates(measured, topologies, averagings).found
    base = timed(measured, found[0]).step_seconds
    rows = [_short(measured, each, timed(measured, each), base) for each in found if each.rounds is not None]
    if not rows:
        return Choice("complete", PLAIN, "none of the topologies asked for serves these workers", 1.0)
    row = best(rows)
    return Choice(row.topology, row.codec, decentralized(row), row.speedup_over_allreduce)


def _short(measured: Measured, candidate: Candidate, took: Timing, base: float) -> Row:
    """A row without its interval."""
    values: dict[str, Any] = took._asdict()
    return Row(
        **values,
        topology=candidate.topology,
        codec=candidate.averaging,
        low=took.step_seconds,
        high=took.step_seconds,
        limited_by=took.limited_by,
        speedup_over_allreduce=base / took.step_seconds,
        throughput=1 / took.step_seconds,
        rounds_to_consensus=mixed(measured, candidate).rounds,
        mark=marked(measured, candidate),
    )
