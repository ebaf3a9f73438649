"""A perceptron and a small convolutional network on handwritten digits."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hf_decentral.errors.simulator import no_digits, wrong_digits
from hf_decentral.simulator.base import Data, Problem
from hf_decentral.simulator.seeding import seeded

VARIABLE = "HF_DECENTRAL_MNIST"
"""The environment variable that names the file of digits."""

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_BESIDE = Path("shared", "data", "mnist", "mnist10k.npz")  # beside a checkout of this repository


def mnist_mlp(dim: int = 64, seed: int = 0, *, data: str | Path | None = None, batch: int = 16) -> Problem:
    """A perceptron with one hidden layer.

    Args:
        dim: units of the hidden layer.
        seed: of the starting weights.
        data: the file of digits, see :func:`digits`.
        batch: samples of each worker in each step.

    Raises:
        DataError: no digits.
    """
    train, valid = digits(data)
    with seeded(seed):
        model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, dim), nn.ReLU(), nn.Linear(dim, 10))
    return Problem("mnist-mlp", model, functional.cross_entropy, train, valid, batch)


def mnist_cnn(dim: int = 8, seed: int = 0, *, data: str | Path | None = None, batch: int = 16) -> Problem:
    """Two convolutions, the first with a stride of two, pooling, and a linear layer.

    Args:
        dim: channels of the first convolution; the second has twice as many.
        seed: of the starting weights.
        data: the file of digits, see :func:`digits`.
        batch: samples of each worker in each step.

    Raises:
        DataError: no digits.
    """
    train, valid = digits(data)
    with seeded(seed):
        model = nn.Sequential(
            nn.Conv2d(1, dim, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(dim, 2 * dim, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * dim * 7 * 7, 10),
        )
    return Problem("mnist-cnn", model, functional.cross_entropy, train, valid, batch)


def digits(data: str | Path | None = None) -> tuple[Data, Data]:
    """Training and test digits: ``[N, 1, 28, 28]`` with mean 0 and variance 1, and classes ``[N]``.

    Args:
        data: a file of numpy (.npz) with the arrays :data:`ARRAYS`, images ``[N, 28, 28]`` of bytes; None:
            the one that the environment names, or the one beside the checkout.

    Raises:
        DataError: no such file, or other arrays in it.
    """
    path = _found(data)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing = [name for name in ARRAYS if name not in file]
            if missing:
                raise wrong_digits(path, f"it has no array {missing[0]!r}")
            x, y, x_test, y_test = (torch.from_numpy(file[name]) for name in ARRAYS)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise wrong_digits(path, str(error)) from error
    for images in (x, x_test):
        if images.ndim != 3 or images.shape[1:] != (28, 28):
            raise wrong_digits(path, f"its images have shape {list(images.shape)}")
    own = x.float() / 255
    mean, deviation = own.mean(), own.std()

    def normal(images: Tensor) -> Tensor:
        return ((images.float() / 255 - mean) / deviation)[:, None]

    return (normal(x), y.long()), (normal(x_test), y_test.long())


def _found(data: str | Path | None) -> Path:
    named = data or os.environ.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise no_digits(path, VARIABLE)
        return path
    beside = Path(__file__).resolve().parents[3] / _BESIDE
    if not beside.is_file():
        raise no_digits(Path("..") / _BESIDE, VARIABLE)
    return beside
