"""Which distribution describes measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from hf_decentral.cluster.draws import Vector
from hf_decentral.cluster.laws import Law
from hf_decentral.errors.cluster import not_times

CONSTANT = 0.005
"""Coefficient of variation below which all times count as equal."""
_CRITICAL = 1.035
_POINTS = 33
_LEAST_MEANS = 3.0001  # a bit more deviations than a gaussian law asks for, so that rounding keeps it valid
_WIDEST = 2.999  # of a lognormal law


def fit(samples: Sequence[float]) -> str:
    """The text, as :func:`hf_decentral.cluster.laws.law` reads it, of the distribution of measured times.

    ``constant`` where the coefficient of variation is below 0.5 %. Otherwise ``gaussian`` or ``lognormal``,
    whichever is nearer, if a test of Lilliefors' kind does not reject it at 1 %: with ``D`` the largest
    distance between the distribution of the ``n`` samples and the fitted one, ``D (sqrt(n) - 0.01 +
    0.85 / sqrt(n)) <= 1.035`` (Stephens 1974, mean and variance unknown). Otherwise ``empirical`` with at
    most 33 points, which is also what many samples of an exponential or of two kinds of steps become.

    No sample is thrown away. One that is far off makes the law empirical, whose mean stays that of the
    samples exactly: an outlier counts as the one time in ``n`` that it was. Its longest point is then below
    the outlier, since that one time is spread over the last points.

    Args:
        samples: seconds, one or more; their order does not matter.

    Raises:
        SettingsError: there are none, or one is not finite or not above 0.
    """
    times = np.sort(np.asarray(samples, dtype=np.float64).ravel())
    wrong = times[~(np.isfinite(times) & (times > 0))]
    if not len(times) or len(wrong):
        raise not_times(len(times), float(wrong[0]) if len(wrong) else None)
    mean = float(times.mean())
    if len(times) == 1 or times.std(ddof=1) < CONSTANT * mean:
        return Law("constant", (mean,)).text
    near = [(distance, found) for distance, found in _smooth(times) if distance <= _allowed(len(times))]
    if near:
        return min(near, key=lambda each: round(each[0], 6))[1].text  # gaussian where two are as near
    return Law("empirical", _points(times)).text


def _smooth(times: Vector) -> list[tuple[float, Law]]:
    """The laws of two numbers that these times may have, with their distances."""
    found = []
    mean, deviation = float(times.mean()), float(times.std(ddof=1))
    if mean >= _LEAST_MEANS * deviation:
        found.append((_distance(times), Law("gaussian", (mean, deviation))))
    logs = np.log(times)
    sigma = float(logs.std(ddof=1))
    if sigma <= _WIDEST:
        found.append((_distance(logs), Law("lognormal", (math.exp(logs.mean()), sigma))))
    return found


def _distance(values: Vector) -> float:
    """The largest between the distribution of sorted values and the normal one of that mean and deviation."""
    deviates = torch.from_numpy((values - values.mean()) / values.std(ddof=1))
    below: Vector = torch.special.ndtr(deviates).numpy()
    ranks = np.arange(len(values) + 1) / len(values)
    return float(max((ranks[1:] - below).max(), (below - ranks[:-1]).max()))


def _allowed(count: int) -> float:
    root = math.sqrt(count)
    return _CRITICAL / (root - 0.01 + 0.85 / root)


def _points(times: Vector) -> tuple[float, ...]:
    """Points at even quantiles whose linear interpolation has the mean of the sorted times.

    Each is the mean of the quantile function around it, with weights that fall linearly to the points next to
    it, so that the points ascend, and the mean is kept whatever the last times are.
    """
    parts = min(_POINTS, len(times)) - 1
    # In every one of these cells the quantile function is constant, and the weights are linear.
    cells = parts * len(times)
    held = np.repeat(times, parts)
    part = np.repeat(np.arange(parts), len(times))
    weight = (np.arange(cells) + 0.5) / len(times) - part

    def spread(values: Vector) -> Vector:
        ends = parts + 1
        left, right = (1 - weight) * values, weight * values
        return np.asarray(np.bincount(part, left, ends) + np.bincount(part + 1, right, ends), np.float64)

    points = np.maximum.accumulate(
        spread(held) / spread(np.ones(cells))
    )  # rounding may turn equal ones around
    return tuple(points.tolist())
