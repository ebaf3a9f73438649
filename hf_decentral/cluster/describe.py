"""From the steps of all workers and their links to the description of a cluster: no clock, no wire."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import mean, median, median_low
from typing import Any

import numpy as np
import torch

from hf_decentral.cluster.draws import Vector
from hf_decentral.cluster.fits import fit
from hf_decentral.cluster.handling import Handling
from hf_decentral.cluster.lines import Line
from hf_decentral.cluster.measured import EVEN, Coding, Measured, Piece, Work
from hf_decentral.cluster.probe import Probed
from hf_decentral.cluster.stopwatch import Steps

UNCERTAIN = ("compute", "link", "inside")
"""The names in :attr:`Measured.uncertainty`."""

MOST_PIECES = 32
SLOWER = 1.05
"""From here on, and beyond the noise of its median, a worker is slow for good."""
_SURE = 3.0  # standard deviations
_LEAST_CORRELATION = 0.1
_BLOCKS = 5  # of consecutive steps, whose means show what a longer run would find
_FORWARD = 1 / 3  # of a step, where nothing told
_NORMAL = 1.349  # quartile distance of a normal distribution, in standard deviations
_OF_MEDIAN = 1.253  # standard error of a median, in those of a mean


def describe(
    steps: Sequence[Steps],
    probed: Probed,
    handlings: Sequence[Handling] = (),
    *,
    model: str = "",
    about: Mapping[str, Any] | None = None,
) -> Measured:
    """What was measured, as :class:`Measured`. A pure function: the same on every worker.

    Args:
        steps: of each worker, ``[W]``, all with at least one step.
        probed: the links.
        handlings: of each worker; left out, combining and coding take no time.
        model: what was trained, in words.
        about: what else to keep for people.
    """
    slow = slow_workers([each.compute_seconds for each in steps])
    usual = [each for worker, each in enumerate(steps) if worker not in slow]
    samples = [seconds for each in usual for seconds in each.compute_seconds]
    forward = forward_share(usual)
    cluster = replace(
        probed.cluster,
        compute=fit(samples),
        slow=slow,
        correlation=correlation([each.compute_seconds for each in usual]),
    )
    uncertainty = {UNCERTAIN[0]: settled([each.compute_seconds for each in usual])}
    uncertainty |= {name: line.spread / 2 for name, line in lines(probed).items()}
    combine, codings = _together(handlings)
    work = Work(
        parameter_bytes=usual[0].parameter_bytes,
        forward_share=forward,
        local_seconds=median(median(each.local_seconds) for each in steps),
        combine_seconds=combine,
        pieces=pieces(usual[0].ready, forward),
        codings=codings,
    )
    told = {**_about(probed, steps), **(about or {})}
    return Measured(len(steps), cluster, work, model, uncertainty, told)


def lines(probed: Probed) -> dict[str, Line]:
    """The kinds of links that there are, by the name that their uncertainty has."""
    both = dict(zip(UNCERTAIN[1:], (probed.between, probed.inside), strict=True))
    return {name: line for name, line in both.items() if line is not None}


def slow_workers(times: Sequence[Sequence[float]]) -> dict[int, float]:
    """The workers that are slower than the others in all their steps, and how many times.

    Args:
        times: compute times of the steps of each worker.
    """
    middles = [median(each) for each in times]
    usual = median_low(middles)  # of two workers the faster one is usual
    noise = [_OF_MEDIAN * _quartiles(each) / _NORMAL / math.sqrt(len(each)) for each in times]
    reference = noise[middles.index(usual)]
    return {
        worker: middle / usual
        for worker, middle in enumerate(middles)
        if middle > SLOWER * usual and middle - usual > _SURE * math.hypot(noise[worker], reference)
    }


def correlation(times: Sequence[Sequence[float]]) -> float:
    """How alike the luck of two workers is in one step, 0 where that may be chance.

    The mean over all pairs of the correlation of normal scores, which is what :class:`Cluster` means by it.
    """
    count = min(len(each) for each in times)
    if len(times) < 2 or count < 4:
        return 0.0
    scores = np.stack([_scores(np.asarray(each[:count])) for each in times])
    found = np.atleast_2d(np.corrcoef(scores))
    pairs = found[np.triu_indices(len(times), 1)]
    if not np.isfinite(pairs).all():
        return 0.0
    middle = float(pairs.mean())
    sure = _SURE / math.sqrt(count * len(pairs))
    return min(1.0, middle) if middle > max(sure, _LEAST_CORRELATION) else 0.0


def settled(times: Sequence[Sequence[float]]) -> float:
    """The relative half-width of the quartiles of means over consecutive steps: how sure a mean is."""
    found = []
    for each in times:
        blocks = np.array_split(np.asarray(each), min(_BLOCKS, len(each)))
        found += [float(block.mean()) / mean(each) for block in blocks]
    return _quartiles(found) / 2


def forward_share(steps: Sequence[Steps]) -> float:
    """Share of forward in forward and backward; where nothing told, a third, or until the first gradient."""
    known = [each.forward_share for each in steps if each.forward_share is not None]
    if known:
        return min(0.99, median(known))
    first = min((time for time, _ in steps[0].ready), default=1.0)
    return min(_FORWARD, first)


def pieces(ready: Sequence[tuple[float, int]], forward: float) -> tuple[Piece, ...]:
    """The gradients in the order in which they come, small ones together, as shares of backward.

    Args:
        ready: when each was there, as a share of the step's compute time, and its bytes.
        forward: the share of forward.
    """
    whole = sum(size for _, size in ready)
    if not whole:
        return EVEN
    found: list[Piece] = []
    held, latest = 0, 0.0
    for time, size in sorted(ready):
        held += size
        latest = max(latest, min(1.0, max(0.0, (time - forward) / (1 - forward))))
        if held * MOST_PIECES >= whole:
            found.append((latest, held / whole))
            held = 0
    if held:
        found.append((latest, held / whole))
    return tuple(found)


def _quartiles(values: Sequence[float]) -> float:
    low, high = np.quantile(values, (0.25, 0.75))
    return float(high - low)


def _scores(values: Vector) -> Vector:
    """The normal deviates of the ranks."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    scores: Vector = torch.special.ndtri(torch.from_numpy((ranks + 0.5) / len(values))).numpy()
    return scores if np.ptp(values) > 0 else np.zeros_like(scores)


def _together(handlings: Sequence[Handling]) -> tuple[float, dict[str, Coding]]:
    if not handlings:
        return 0.0, {}
    codings = {
        name: Coding(
            coding.payload,
            median(each.codings[name].before_seconds for each in handlings),
            median(each.codings[name].after_seconds for each in handlings),
        )
        for name, coding in handlings[0].codings.items()
    }
    return median(each.combine_seconds for each in handlings), codings


def _about(probed: Probed, steps: Sequence[Steps]) -> dict[str, Any]:
    tables = {name: [asdict(row) for row in line.rows] for name, line in lines(probed).items()}
    if probed.reduced:
        tables["all-reduce"] = [asdict(row) for row in probed.reduced]
    return {
        "backend": probed.backend,
        "steps": [len(each.compute_seconds) for each in steps],
        "mean_compute_seconds": [mean(each.compute_seconds) for each in steps],
        "messages": tables,
        "host_bits_per_second": {name: list(line.rates) for name, line in lines(probed).items()},
    }
