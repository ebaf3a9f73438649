"""EquiTopo: static circulant graphs of few random shifts (Song et al. 2022, arXiv 2210.07881)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil, log

import numpy as np

from hf_decentral.errors import out_of_range
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Hosts, Topology, shifted
from hf_decentral.topology.drawn import permutation

_DRAWS = 64


def d_equistatic(workers: int, hosts: Hosts = None, seed: int = 0, graphs: int = 0) -> Topology:
    """D-EquiStatic: the mean of ``M`` directed graphs ``A(u) = I / n + (1 - 1 / n) P^u``, ``P`` the shift by
    one; the shifts ``u`` are the best of some draws.

    The hosts do not matter. With ``M`` about ``ln n`` the rate hardly falls as the workers grow in number.

    Args:
        workers: number of workers, ``n``.
        hosts: of no effect.
        seed: of the draws.
        graphs: ``M``, at most ``n - 1``, which is the complete graph; 0: ``ln n``, rounded up.

    Raises:
        SettingsError: more graphs than there are.
    """
    return _static("d_equistatic", workers, seed, graphs, (1,))


def u_equistatic(workers: int, hosts: Hosts = None, seed: int = 0, graphs: int = 0) -> Topology:
    """U-EquiStatic: as :func:`d_equistatic`, but of the symmetric ``(A(u) + A(-u)) / 2``: a worker has up to
    ``2 M`` neighbours."""
    return _static("u_equistatic", workers, seed, graphs, (1, -1))


def _static(name: str, workers: int, seed: int, graphs: int, signs: tuple[int, ...]) -> Topology:
    if workers == 1:
        return Topology.cycle(name, [Round.identity(1)])
    if graphs > workers - 1:
        advice = f"leave it out for {_few(workers)}"
        raise out_of_range("graphs", graphs, f"at most {workers - 1}, one less than workers", advice)
    shifts = _best(name, workers, seed, graphs or _few(workers), signs)
    heard = Counter(sign * u % workers for u in shifts for sign in signs)
    # Whole numbers are divided once, so that the mean of all graphs is 1 / n to the last bit.
    each = workers * len(shifts) * len(signs)
    weights = {-u: times * (workers - 1) / each for u, times in heard.items()}
    return Topology.cycle(name, [shifted({0: 1 / workers, **weights}, workers)])


def _few(workers: int) -> int:
    return max(1, ceil(log(workers)))


def _best(name: str, workers: int, seed: int, graphs: int, signs: tuple[int, ...]) -> list[int]:
    """The shifts that leave least of the differences, among 64 draws; more if none of those is connected."""
    best: list[int] = []
    least, draw = 1.0, 0
    while draw < _DRAWS or not best:
        shifts = sorted(1 + u for u in permutation(workers - 1, name, seed, draw)[:graphs])
        # Rounded: what differs in its last bits from machine to machine must not decide.
        left = round(_left(workers, [sign * u for u in shifts for sign in signs]), 9)
        if left < least:
            best, least = shifts, left
        draw += 1
    return best


def _left(workers: int, shifts: Iterable[int]) -> float:
    """Second largest modulus of the eigenvalues: those of a circulant are the Fourier transform of a row."""
    row = np.zeros(workers)
    for shift in shifts:
        row[shift % workers] += 1
    row *= (1 - 1 / workers) / row.sum()
    row[0] += 1 / workers
    return float(np.abs(np.fft.fft(row)[1:]).max())
