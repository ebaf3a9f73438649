"""Which row to take, and whether to leave All-Reduce at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hf_decentral.planner.candidates import ALLREDUCE, PLAIN
from hf_decentral.planner.predict import Row

ALIKE = 1.02
"""Rows that are less than 2 % slower than the fastest are no slower, as far as a model can tell."""

WORTH = 1.03
"""What leaving All-Reduce must gain: replicas that differ between steps are a price."""


@dataclass(frozen=True)
class Recommendation:
    """What to do.

    Attributes:
        topology: ``"allreduce"`` where it advises to stay.
        codec: the averaging method; ``"plain"``: none.
        why: a sentence with the numbers.
        speedup_over_allreduce: over All-Reduce with plain gradients.
    """

    topology: str
    codec: str
    why: str
    speedup_over_allreduce: float


@dataclass(frozen=True)
class Choice:
    """The best decentralized configuration.

    Attributes:
        topology: as :func:`hf_decentral.topology.build` reads it.
        averaging: as :func:`hf_decentral.averaging.build` reads it.
        why: a sentence with the numbers.
        speedup_over_allreduce: below 1 where All-Reduce is faster.
    """

    topology: str
    averaging: str
    why: str
    speedup_over_allreduce: float


def best(rows: Sequence[Row]) -> Row:
    """The fastest that is not marked; of those less than 2 % slower, one without a codec, then the one that
    mixes fastest, then the one that sends least.

    Where all are marked it is the best of them. The order of the rows decides nothing but ties.
    """
    good = [row for row in rows if not row.mark] or rows
    limit = ALIKE * min(row.step_seconds for row in good)
    return min((row for row in good if row.step_seconds <= limit), key=_taste)


def _taste(row: Row) -> tuple[bool, float, float, float]:
    rounds = float("inf") if row.rounds_to_consensus is None else row.rounds_to_consensus
    return row.codec != PLAIN, rounds, row.sent_bytes, row.step_seconds


def called(row: Row) -> str:
    """A row in words."""
    if row.topology == ALLREDUCE:
        return "All-Reduce" if row.codec == PLAIN else f"All-Reduce with {row.codec} gradients"
    return row.topology if row.codec == PLAIN else f"{row.topology} with {row.codec}"


def decentralized(row: Row) -> str:
    """Why this row, as the best of the decentralized ones."""
    gain = row.speedup_over_allreduce
    told = f"{1000 * row.step_seconds:.4g} ms a step, {gain:.2f} times as fast as All-Reduce"
    if row.mark:
        return f"{told}; every other is poor too ({row.mark})"
    limits = {
        "compute": "nearly all of it is computing",
        "wire": f"the wire adds {1000 * row.wire_seconds:.3g} ms",
        "stragglers": f"waiting for slow steps adds {1000 * row.straggler_seconds:.3g} ms",
    }
    return f"{told}; {limits[row.limited_by]}"


def stay(kept: Row, other: Row | None, worst: float | None) -> Recommendation | None:
    """The advice to keep All-Reduce, where it is due.

    Args:
        kept: the best row of All-Reduce.
        other: the best decentralized row; None: there is none.
        worst: the least factor by which the other is faster, over the uncertainty of the measurement; None:
            not known.
    """
    price = "and costs you replicas that differ between steps"
    speedup = kept.speedup_over_allreduce
    if other is None:
        why = f"stay with {called(kept)}: none of the others that were asked for can be had here"
        return Recommendation(kept.topology, kept.codec, why, speedup)
    gain = kept.step_seconds / other.step_seconds
    name, reference = called(other), called(kept)
    if gain < WORTH:
        told = f"gains {100 * (gain - 1):.0f} %" if gain >= 1.005 else "gains nothing"
        if gain <= 0.995:
            told = f"loses {100 * (1 - gain):.0f} %"
        why = f"stay with {reference}: decentralized, {name}, {told} {price}"
    elif other.mark:
        why = f"stay with {reference}: every decentralized configuration is poor, {name} {other.mark}"
    elif worst is not None and worst < 1:
        why = (
            f"stay with {reference}: {name} may gain {100 * (gain - 1):.0f} %, but as sure as these figures "
            f"are it may as well lose {100 * (1 - worst):.0f} %, {price}; calibrate to know"
        )
    else:
        return None
    return Recommendation(kept.topology, kept.codec, why, speedup)


def leave(kept: Row, other: Row, worst: float) -> Recommendation:
    """The advice to take the decentralized row."""
    gain, reference = kept.step_seconds / other.step_seconds, called(kept)
    limits = {
        "compute": "it hides behind the computing",
        "wire": "it still waits for the wire",
        "stragglers": "what it waits for are slow workers",
    }
    plain = "" if kept.codec == PLAIN else f" ({other.speedup_over_allreduce:.2f} with plain gradients)"
    why = (
        f"{called(other)} takes {1000 * other.step_seconds:.4g} ms a step where {reference} takes "
        f"{1000 * kept.step_seconds:.4g}: {gain:.2f} times as fast{plain}, {worst:.2f} times at worst, and "
        f"{limits[other.limited_by]}"
    )
    return Recommendation(other.topology, other.codec, why, other.speedup_over_allreduce)
