"""Random numbers that are functions of what they are for, so that nothing must be kept to draw them again.

They come from a generator by counter (Philox 4x64, Salmon et al. 2011). The number of a worker and a step
does not depend on how many workers there are, or on which were drawn before.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_BLOCK = 4  # numbers that one count gives
_KEPT = 256  # steps


class Purpose(IntEnum):
    """What a number is for; numbers for different purposes are independent."""

    COMPUTE = 0
    PARTNER = 1
    GIVER = 2
    COMMON = 3


def uniforms(seed: int, step: int, workers: int, purpose: Purpose) -> Vector:
    """One number above 0 and below 1 for each of the workers 0, 1, ..., ``[W]``."""
    own: Vector = _uniforms(seed, step, workers, purpose).copy()
    return own


def uniform(seed: int, step: int, worker: int, purpose: Purpose) -> float:
    """The number of one worker."""
    block = _philox(seed, step, worker // _BLOCK, purpose).random_raw(_BLOCK)
    return float(_open_interval(block)[worker % _BLOCK])


@lru_cache(maxsize=_KEPT)
def _uniforms(seed: int, step: int, workers: int, purpose: Purpose) -> Vector:
    """The latest are kept: methods that are compared meet the same steps one after the other."""
    return _open_interval(_philox(seed, step, 0, purpose).random_raw(workers))


def _philox(seed: int, step: int, count: int, purpose: Purpose) -> np.random.Philox:
    counter = np.array([count, 0, 0, int(purpose)], dtype=np.uint64)
    return np.random.Philox(counter=counter, key=np.array([seed % 2**64, step], dtype=np.uint64))


def _open_interval(raw: NDArray[np.uint64]) -> Vector:
    """The upper 52 bits as a fraction; half a unit more is never 0 and never rounds to 1."""
    fractions: Vector = ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return fractions
