"""Draws that are the same in every process, on every machine and under every version of a library."""

from __future__ import annotations

import hashlib

import numpy as np


def permutation(count: int, *seeds: object) -> list[int]:
    """The numbers 0 to ``count - 1`` in an order that depends on the seeds alone, all orders alike likely.

    Each number is given 64 bits of SHAKE-128 of the seeds, by which they are sorted. A generator of a library
    would do as well until two hosts have two versions of it.
    """
    bits = hashlib.shake_128(" ".join(map(str, seeds)).encode()).digest(8 * count)
    order: list[int] = np.argsort(np.frombuffer(bits, dtype="<u8"), kind="stable").tolist()
    return order
