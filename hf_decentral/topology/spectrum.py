"""What a topology does to differences between workers, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_decentral.topology.base import Topology

_EXACT = 1e-12


@dataclass(frozen=True)
class Spectrum:
    """Attributes:
    exact: rounds after which all workers hold the mean; None where that is only approached.
    second_eigenvalue: second largest modulus of the eigenvalues of one period's product.
    contraction: what is left of the differences after a period at worst, ``||prod M - J||_2``.
    largest_stable_step: largest learning rate times curvature for which adapt-while-combine does not grow
        on equal quadratics; 1 on the complete graph, 2/3 on the ring of thirds (1 + smallest eigenvalue). All-Reduce
        and adapt-then-combine: 2.
    """

    exact: int | None
    second_eigenvalue: float
    contraction: float
    largest_stable_step: float


def spectrum(topology: Topology) -> Spectrum:
    """The numbers of one period, in float64 (of 64 rounds, where a topology never repeats)."""
    matrices = [round.matrix() for round in topology.rounds()]
    mean = torch.full_like(matrices[0], 1.0 / topology.workers)
    product = _product(matrices)
    moduli = torch.linalg.eigvals(product - mean).abs()
    return Spectrum(
        exact=_exact(matrices, mean),
        second_eigenvalue=float(moduli.max()),
        contraction=float(torch.linalg.matrix_norm(product - mean, 2)),
        largest_stable_step=largest_stable_step(matrices),
    )


def largest_stable_step(matrices: Sequence[Tensor]) -> float:
    """Largest ``a`` with spectral radius of ``prod_t (M_t - a I)`` at most 1."""
    low, high, step = 0.0, 0.0, 0.02
    while high < 2.2 and _radius(matrices, high + step) <= 1 + 1e-9:
        high += step
    low, high = high, high + step
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _radius(matrices, middle) <= 1 + 1e-12 else (low, middle)
    return low


def _radius(matrices: Sequence[Tensor], a: float) -> float:
    eye = torch.eye(len(matrices[0]), dtype=torch.float64)
    return float(torch.linalg.eigvals(_product([m - a * eye for m in matrices])).abs().max())


def _product(matrices: Sequence[Tensor]) -> Tensor:
    product = matrices[0]
    for m in matrices[1:]:
        product = m @ product
    return product


def _exact(matrices: Sequence[Tensor], mean: Tensor) -> int | None:
    product = torch.eye(len(mean), dtype=mean.dtype)
    for count, m in enumerate(matrices, 1):
        product = m @ product
        if float((product - mean).abs().max()) < _EXACT:
            return count
    return None
