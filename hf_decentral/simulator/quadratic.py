"""Quadratics whose optimum is known, and in which workers differ as much as one asks for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hf_decentral.errors import out_of_range
from hf_decentral.simulator.base import Problem

DIRECTIONS, GROUPS = 8, 10
# Every number of workers that divides it gets shards of one size, and so the optimum of all samples; among
# them 8, 16, 25, 64 and 1,000.
SAMPLES = 8000


class Diagonal(nn.Module):
    """``sqrt(a) * (x - z B)`` for samples ``z``: half its square is a quadratic with the curvatures ``a``.

    The targets ``z B`` of all samples lie in a space of few directions, so that a sample is a few numbers and
    ``N`` samples of a million parameters need no gigabytes.

    Args:
        start: ``x`` at the beginning, ``[dim]``.
        basis: ``B``, ``[directions, dim]``.
        curvature: ``a``, ``[dim]``.
    """

    basis: Tensor
    root: Tensor

    def __init__(self, start: Tensor, basis: Tensor, curvature: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start)
        self.register_buffer("basis", basis)
        self.register_buffer("root", curvature.sqrt())

    def forward(self, samples: Tensor) -> Tensor:
        """``[batch, directions]`` to ``[batch, dim]``."""
        return (self.x - samples @ self.basis) * self.root


def weighted(outputs: Tensor, weights: Tensor) -> Tensor:
    """``mean_i w_i ||outputs_i||^2 / 2``: sample ``i`` has the curvature of the model times ``w_i``."""
    return 0.5 * (outputs.square().sum(-1) * weights).mean()


def quadratic(
    dim: int = 100,
    seed: int = 0,
    *,
    samples: int = SAMPLES,
    condition: float = 10.0,
    spread: float = 1.0,
    noise: float = 0.3,
    unequal: float = 4.0,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """``f(x) = mean_i w_i sum_d a_d (x_d - t_id)^2 / 2`` over the samples ``i``.

    Samples come from :data:`GROUPS` groups; what a group has in common is what workers with skewed shards
    differ in. Its minimum is the weighted mean of the targets ``t_i``. Where all workers have as many
    samples, the mean of their losses is ``f``.

    Args:
        dim: number of parameters.
        seed: of the data and the start.
        samples: number of training samples.
        condition: largest over smallest curvature; ``a_d`` goes from ``1 / condition`` to 1.
        spread: standard deviation of the groups' targets.
        noise: standard deviation of the samples' targets within a group.
        unequal: largest over smallest weight ``w_i`` of the groups. With 1, workers of equal curvature, the
            mean of the workers goes the same way whoever averages with whom.
        batch: samples of each worker in each step.
        dtype: of all numbers.

    Raises:
        SettingsError: a number out of its range.
    """
    for name, value in (("dim", dim), ("samples", samples), ("condition", condition), ("unequal", unequal)):
        if not value >= 1:
            raise out_of_range(name, value, "1 or more", "raise it")
    z, weights, groups, basis = _samples(dim, samples, (spread, noise, unequal), seed)
    start = torch.randn(dim, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    curvature = torch.logspace(0, 1, dim, base=1 / condition, dtype=torch.float64)
    valid, optimum = _the_same(z, weights, basis, curvature)
    return Problem(
        name="quadratic",
        model=Diagonal(start.to(dtype), basis.to(dtype), curvature.to(dtype)),
        loss=weighted,
        train=(z.to(dtype), weights.to(dtype)),
        valid=(valid[0].to(dtype), valid[1].to(dtype)),
        batch=batch,
        optimum=optimum,
        groups=groups,
    )


def _samples(
    dim: int, samples: int, shape: tuple[float, float, float], seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples ``z``, weights and groups, and the basis ``B``."""
    spread, noise, unequal = shape
    draw = torch.Generator().manual_seed(seed)
    basis = torch.randn(DIRECTIONS, dim, generator=draw, dtype=torch.float64) / DIRECTIONS**0.5
    groups = torch.arange(samples) * GROUPS // samples
    centers = spread * torch.randn(GROUPS, DIRECTIONS, generator=draw, dtype=torch.float64)
    z = centers[groups] + noise * torch.randn(samples, DIRECTIONS, generator=draw, dtype=torch.float64)
    weights = (unequal ** torch.linspace(-0.5, 0.5, GROUPS, dtype=torch.float64))[groups]
    return z, weights, groups, basis


def _the_same(
    z: Tensor, weights: Tensor, basis: Tensor, curvature: Tensor
) -> tuple[tuple[Tensor, Tensor], float]:
    """A few samples with the same ``f(x)`` for every ``x`` as all, and the minimum of it.

    ``f`` depends on the samples through their weighted mean and covariance alone, which two points on each
    principal axis have too.
    """
    share = weights / weights.sum()
    mean = share @ z
    away = z - mean
    values, axes = torch.linalg.eigh(away.T @ (share[:, None] * away))
    steps = (len(values) * values.clamp(min=0)).sqrt()[:, None] * axes.T
    points = torch.cat([mean + steps, mean - steps])
    level = weights.mean()
    optimum = 0.5 * level * ((steps @ basis).square() @ curvature).mean()
    return (points, level.expand(len(points)).clone()), float(optimum)
