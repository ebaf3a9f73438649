"""The distribution that some measured times follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hf_decentral.cluster.laws import Law

_POINTS = 33
_EVEN = 0.005


def fit(samples: Sequence[float]) -> str:
    """The text of the law of these times, in seconds."""
    times = np.asarray(samples, dtype=np.float64)
    if np.quantile(times, 0.9) - np.quantile(times, 0.1) < _EVEN * np.median(times):
        return Law("constant", (float(times.mean()),)).text
    points = np.quantile(times, np.linspace(0, 1, min(_POINTS, len(times))))
    return Law("empirical", tuple(float(point) for point in points)).text
