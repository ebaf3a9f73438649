"""How many rounds a topology needs to bring workers together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Topology

Array = np.ndarray
STARTS, DRAWS = 4, 5
MOST_ROUNDS, _SOON = 20_000, 1_000
_ZERO, _LEFT = 1e-12, 1e-6


@dataclass(frozen=True)
class Speed:
    """How fast the consensus distance of a topology falls.

    Attributes:
        rounds: that bring the distance down by the factor asked for; None if so many were not tried.
        exact_after: the round after which nothing is left of it; None if it only falls. Where rounds are
            redrawn it is None too: what one draw takes, another may not.
        how: ``"run"`` and counted; ``"median"`` of draws; or ``"eigenvalues"``, from which it was computed.
    """

    rounds: int | None
    exact_after: int | None = None
    how: str = "run"


def speed(topology: Topology, factor: float = 1e6, most: int = MOST_ROUNDS) -> Speed:
    """Run rounds on random numbers until the consensus distance is ``factor`` times smaller.

    They are run on ``[W, 4]`` numbers of a normal distribution, a sparse round costing as much as it has
    weights. Where every round is the same circulant, as that of a ring, more than a thousand are not run but
    computed: see :func:`rounds_of_circulant`. Where rounds are redrawn it is the median of five stretches.
    """
    if topology.repeated() is None:
        draws = [_run(topology, factor, most, k * most).rounds for k in range(DRAWS)]
        middle = sorted(most + 1 if rounds is None else rounds for rounds in draws)[DRAWS // 2]
        return Speed(middle if middle <= most else None, how="median")
    soon = _run(topology, factor, min(most, _SOON))
    if soon.rounds is None and topology.period == 1 and _is_circulant(topology(0)):
        return Speed(rounds_of_circulant(topology(0), factor), how="eigenvalues")
    return soon if soon.rounds is not None else _run(topology, factor, most)


def _run(topology: Topology, factor: float, most: int, first: int = 0) -> Speed:
    """Count the rounds from step ``first`` on."""
    drawn = torch.randn(topology.workers, STARTS, generator=torch.Generator().manual_seed(0)).double().numpy()
    x = drawn - drawn.mean(0)  # the rounds keep the mean, so what is left is the distance to it
    begin = _norm(x)
    if begin == 0.0:  # a single worker is its own mean
        return Speed(0, 0)
    period = topology.period
    made = lru_cache(maxsize=period or 1)(lambda step: applied(topology(step)))
    before, needed = begin, None
    for count in range(1, most + 1):
        step = first + count - 1
        x = made(step % period if period else step)(x)
        left = _norm(x)
        if left < _ZERO * begin and before > _LEFT * begin:
            return Speed(needed or count, count)
        if needed is None and left * factor <= begin:
            needed = count
        if needed is not None and left < _LEFT * begin:
            return Speed(needed)
        before = left
    return Speed(needed)


def rounds_of_circulant(round: Round, factor: float) -> int | None:
    """Repetitions of a circulant round that make the expected square of the distance ``factor^2`` smaller.

    Its eigenvalues ``l`` are the Fourier transform of a row, and differences that begin as independent
    numbers of one distribution have as much in each of its orthogonal eigenvectors: ``k`` rounds leave
    ``sum |l|^(2 k) / (W - 1)`` of their squares.
    """
    row = np.zeros(round.workers)
    for j, weight in round.rows[0]:
        row[j] = weight
    moduli = np.abs(np.fft.fft(row)[1:])
    if moduli.max() > 1 - 1e-14:
        return None
    logs = np.log(moduli[moduli > 0])

    def enough(k: int) -> bool:
        return float(np.exp(2 * k * logs).sum()) * factor**2 <= round.workers - 1

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _is_circulant(round: Round) -> bool:
    """Whether all workers hear the same distances with the same weights."""
    workers = round.workers
    shifts = {tuple(sorted(((j - i) % workers, w) for j, w in row)) for i, row in enumerate(round.rows)}
    return len(shifts) == 1


def applied(round: Round) -> Callable[[Array], Array]:
    """The round as a function of ``[W, S]`` numbers; rows that workers share are summed once."""
    place: dict[int, int] = {}
    unique: list[Row] = []
    for row in round.rows:
        if id(row) not in place:
            place[id(row)] = len(unique)
            unique.append(row)
    receivers = np.array([place[id(row)] for row in round.rows])
    senders = np.array([j for row in unique for j, _ in row])
    weights = np.array([w for row in unique for _, w in row])[:, None]
    begins = np.cumsum([0, *(len(row) for row in unique[:-1])])
    shared = len(unique) < len(round.rows)

    def apply(x: Array) -> Array:
        sums = np.add.reduceat(x[senders] * weights, begins, axis=0)
        return sums[receivers] if shared else sums

    return apply


def _norm(x: Array) -> float:
    return math.sqrt(float((x * x).sum()))
