"""A topology from a matrix of the user's own, checked before it can spoil a run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_decentral.errors.topology import (
    bad_weight,
    never_mixes,
    no_matrix,
    not_connected,
    wrong_column,
    wrong_row,
)
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.topology.graph import reached
from hf_decentral.topology.spectrum import radius

_SLACK = 1e-6  # sums of many weights in single precision are off by less
_ROUNDING = 1e-12  # those in double precision; what is below stays as it was given


def custom(matrix: Any, name: str | None = None, push: bool = False) -> Topology:
    """A topology of your own weights.

    Args:
        matrix: ``[W, W]``, row ``i`` the weights with which worker ``i`` sums what it hears; or several of
            them, one a round, which repeat. Torch and numpy arrays and nested lists will do. Sums that are
            off by the rounding of single precision are scaled.
        name: of the topology; left out, one that is made from the weights.
        push: the weights are for push-sum: column ``j`` says how worker ``j`` splits what it has, and only
            the columns need sum to one. Averaging methods without push-sum refuse such a topology.

    Raises:
        TopologyError: not square, a weight that is negative or no number, a row or a column that does not sum
            to one, workers that never hear each other, or rounds that swap numbers and never average them.
    """
    matrices = _matrices(matrix)
    for number, weights in enumerate(matrices):
        _check(weights, number if len(matrices) > 1 else None, push)
    matrices = [_scaled(weights.clamp(min=0), 0 if push else 1) for weights in matrices]
    _check_mixing(matrices)
    rounds = [Round.from_matrix(weights) for weights in matrices]
    if name is None:
        keys = " ".join(round.key for round in rounds)
        name = f"custom-{hashlib.blake2b(keys.encode(), digest_size=6).hexdigest()}"
    return Topology.cycle(name, rounds, push=push)


def _matrices(given: Any) -> list[Tensor]:
    """One or several ``[W, W]`` in float64."""
    try:
        if isinstance(given, (list, tuple)):
            given = [each.detach().cpu() if isinstance(each, Tensor) else each for each in given]
        array = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)
        stack = torch.from_numpy(array.astype(np.float64, casting="safe"))
    except (TypeError, ValueError) as error:  # ragged, or no numbers
        raise no_matrix(str(error)) from error
    if stack.ndim not in (2, 3) or stack.shape[-1] != stack.shape[-2] or not stack.numel():
        raise no_matrix(f"its shape is {list(stack.shape)}")
    return [stack] if stack.ndim == 2 else list(stack)


def _check(weights: Tensor, number: int | None, push: bool) -> None:
    """Each weight, then each sum; ``number`` is the round's where there are several."""
    where = "" if number is None else f" of round {number}"
    bad = (~weights.isfinite() | (weights < -_ROUNDING)).nonzero().tolist()
    if bad:
        i, j = bad[0]
        raise bad_weight(i, j, where, float(weights[i, j]))
    for dim, wrong in ((1, wrong_row), (0, wrong_column)):
        sums = weights.sum(dim)
        off = ((sums - 1).abs() > _SLACK).nonzero().flatten().tolist()
        if off and not (push and dim == 1):
            raise wrong(off[0], where, float(sums[off[0]]))


def _scaled(weights: Tensor, dim: int) -> Tensor:
    """Weights whose rows (``dim`` 1) or columns sum to one, unless they did so but for rounding."""
    sums = weights.sum(dim, keepdim=True)
    return weights if bool(((sums - 1).abs() < _ROUNDING).all()) else weights / sums


def _check_mixing(matrices: Sequence[Tensor]) -> None:
    """Numbers of every worker must reach every other, and must not come back as they went."""
    workers = len(matrices[0])
    linked = torch.stack([weights > 0 for weights in matrices]).any(0)
    everybody = set(range(workers))
    senders: list[list[int]] = [[] for _ in everybody]
    receivers: list[list[int]] = [[] for _ in everybody]
    for i, j in linked.nonzero().tolist():
        senders[i].append(j)
        receivers[j].append(i)
    told = reached(receivers, 0)
    if told != everybody:
        raise not_connected(sorted(told), sorted(everybody - told))
    heard = reached(senders, 0)
    if heard != everybody:
        raise not_connected(sorted(everybody - heard), sorted(heard))
    if all(bool((weights.diagonal() > 0).all()) for weights in matrices):
        return  # whoever keeps a part of its own averages
    product = matrices[0]
    for weights in matrices[1:]:
        product = weights @ product
    if radius(product - 1 / workers) > 1 - 1e-9:
        raise never_mixes()
