"""Logistic regression on drawn data."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from hf_decentral.errors import out_of_range
from hf_decentral.simulator.base import Problem


def logistic(
    dim: int = 32,
    seed: int = 0,
    *,
    classes: int = 10,
    samples: int = 8000,
    valid: int = 2000,
    separation: float = 2.0,
    batch: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """Multinomial logistic regression: points around a center for each class, with unit variance.

    Args:
        dim: number of features; the model has ``(dim + 1) * classes`` parameters.
        seed: of the data.
        classes: number of classes, 2 or more.
        samples: number of training samples.
        valid: number of validation samples.
        separation: root mean square distance of the centers from zero; the classes overlap.
        batch: samples of each worker in each step.
        dtype: of features and parameters.

    Raises:
        SettingsError: a number out of its range.
    """
    for name, value, least in (("dim", dim, 1), ("classes", classes, 2), ("samples", samples, 1)):
        if value < least:
            raise out_of_range(name, value, f"a whole number, {least} or more", "raise it")
    draw = torch.Generator().manual_seed(seed)
    centers = torch.randn(classes, dim, generator=draw, dtype=torch.float64) * separation / dim**0.5
    targets = torch.randint(0, classes, (samples + valid,), generator=draw)
    noise = torch.randn(samples + valid, dim, generator=draw, dtype=torch.float64)
    inputs = (centers[targets] + noise).to(dtype)
    model = nn.Linear(dim, classes, dtype=dtype)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return Problem(
        name="logistic",
        model=model,
        loss=functional.cross_entropy,
        train=(inputs[:samples], targets[:samples]),
        valid=(inputs[samples:], targets[samples:]),
        batch=batch,
    )
