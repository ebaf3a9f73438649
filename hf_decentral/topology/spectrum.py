"""What a topology does to differences between workers, in numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from hf_decentral.topology.base import Topology

_EXACT = 1e-12
_LEFT = 1e-6  # what vanishes in one round was larger; what goes little by little gets there otherwise
_DOUBLINGS = 40  # the norm of a power differs from the radius by a factor whose root this makes 1
_STEP, _MOST = 0.02, 2.2  # the limit is looked for in steps of 0.02; one worker alone reaches 2, the most


@dataclass(frozen=True)
class Spectrum:
    """How a period of a topology mixes, and which learning rate it bears.

    Attributes:
        exact: rounds after which all workers hold the mean; None where that is only approached, and where
            rounds are redrawn.
        second_eigenvalue: second largest modulus of the eigenvalues of a period's product. One less this is
            the spectral gap.
        contraction: what is left of the differences after a period at worst, ``||prod M - J||_2``.
        largest_stable_step: largest learning rate times curvature at which adapt-while-combine does not grow,
            where all workers see one quadratic. The complete graph, which is All-Reduce in that order, has
            1, so this is also the ratio to it. A ring of thirds has 2/3.
    """

    exact: int | None
    second_eigenvalue: float
    contraction: float
    largest_stable_step: float


def spectrum(topology: Topology) -> Spectrum:
    """The numbers of one period in float64, or of the first 64 rounds where a topology never repeats.

    It takes the spectral radius of ``[W, W]`` matrices some eighty times: seconds from a hundred workers on.
    """
    matrices = [round.matrix() for round in topology.rounds()]
    mean = torch.full_like(matrices[0], 1.0 / topology.workers)
    rest = _product(matrices) - mean
    # What one draw of rounds takes, another may not.
    exact = None if topology.repeated() is None else _exact(matrices, mean)
    return Spectrum(
        exact=exact,
        second_eigenvalue=0.0 if exact else radius(rest),
        contraction=0.0 if exact else float(torch.linalg.matrix_norm(rest, 2)),
        largest_stable_step=largest_stable_step(matrices),
    )


def left_of_a_round(topology: Topology) -> float:
    """What a round leaves of the squared differences between the workers, ``sum_i |x_i - mean|^2``.

    It is a mean over all their directions, and over the rounds of one period or 64.

    Where rounds are redrawn and treat all workers alike, this is the expected contraction by one round of any
    differences, since the mean of ``M' M`` over the draws is then a multiple of the identity beside the mean.
    """
    workers, rounds = topology.workers, topology.rounds()
    squares = fmean(math.fsum(w * w for row in round.rows for _, w in row) for round in rounds)
    return (squares - 1) / (workers - 1) if workers > 1 else 0.0


def largest_stable_step(matrices: Sequence[Tensor]) -> float:
    """Largest ``a`` up to which the spectral radius of ``prod_t (M_t - a I)`` is at most 1.

    For one symmetric matrix that is 1 plus its smallest eigenvalue.

    Args:
        matrices: the weights of the rounds of a period, each ``[W, W]``.
    """
    low = 0.0
    while low < _MOST and not _grows(matrices, low + _STEP, 1e-9):
        low += _STEP
    high = low + _STEP
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (low, middle) if _grows(matrices, middle, 1e-12) else (middle, high)
    return low


def radius(matrix: Tensor) -> float:
    """Largest modulus of the eigenvalues of a square matrix, by Gelfand's formula ``||A^k||^(1/k)``.

    A period that ends in the exact mean leaves nothing but rounding, on which an eigenvalue solver may fail.
    """
    power, logarithm = matrix, 0.0
    for doubling in range(_DOUBLINGS):
        norm = float(torch.linalg.matrix_norm(power))
        if norm == 0.0:
            return 0.0
        logarithm += math.log(norm) / 2**doubling
        power = power / norm
        power = power @ power
    return math.exp(logarithm)


def _grows(matrices: Sequence[Tensor], a: float, slack: float) -> bool:
    eye = torch.eye(len(matrices[0]), dtype=torch.float64)
    return radius(_product([m - a * eye for m in matrices])) > 1 + slack


def _product(matrices: Sequence[Tensor]) -> Tensor:
    product = matrices[0]
    for m in matrices[1:]:
        product = m @ product
    return product


def _exact(matrices: Sequence[Tensor], mean: Tensor) -> int | None:
    product = torch.eye(len(mean), dtype=mean.dtype)
    before = math.inf
    for count, m in enumerate(matrices, 1):
        product = m @ product
        apart = float((product - mean).abs().max())
        if apart < _EXACT:
            return count if before > _LEFT else None
        before = apart
    return None
