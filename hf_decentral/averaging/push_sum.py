"""Averages along directed rounds, where a worker need not know who hears it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_decentral.averaging.base import Exchange, State
from hf_decentral.averaging.scaled import space, wide
from hf_decentral.codecs import Span
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send


def prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
    """All workers begin with weight one."""
    if "mass" not in state:
        state["mass"] = torch.cat([x, x.new_ones(len(x), 1)], 1).to(wide(x))


def push_sum(x: Tensor, round: Round, state: State) -> Exchange:
    """``n_i <- sum_j w_ij n_j``, ``w_i <- sum_j w_ij w_j``, ``x_i = n_i / w_i``.

    SGP in adapt-then-combine, 1-OSGP in adapt-while-combine (Assran et al. 2018, arXiv 1811.10792). Only the
    columns of the weights must sum to one; where the rows do too, every ``w_i`` stays one and the rule is the
    plain average. What the local step added to ``x_i`` is added to ``n_i``; doing so twice adds nothing.

    Args:
        x: ``[W, P]``.
        round: who hears whom.
        state: ``mass [W, P + 1]``: the numerators and, last, the weights.
    """
    mass: Tensor = state["mass"]
    numerator, weight = mass[:, :-1], mass[:, -1:]
    moved = space(state, "moved", x)
    torch.div(numerator, weight, out=moved)
    still = None if x.dtype == moved.dtype else moved.to(x.dtype) == x
    torch.sub(x, moved, out=moved)
    if still is not None:  # what x cannot express must not be taken for a local step
        moved.masked_fill_(still, 0.0)
    numerator.add_(moved)
    x.copy_(torch.div(numerator, weight, out=moved))
    if "arrived" not in state.scratch:
        state.scratch["arrived"] = torch.empty_like(mass)
    arrived: Tensor = yield Send(round, mass, into=state.scratch["arrived"])
    mass.copy_(arrived)
    return x.copy_(torch.div(numerator, weight, out=moved))
