"""The weighted mean of the neighbours' parameters."""

from __future__ import annotations

from torch import Tensor

from hf_decentral.averaging.base import Exchange, State
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send


def plain(x: Tensor, round: Round, state: State) -> Exchange:
    """``x_i <- sum_j w_ij x_j``: the average of decentralized SGD (Lian et al. 2017, arXiv 1705.09056).

    Args:
        x: ``[W, P]``, one row for each worker of this process.
        round: who hears whom.
        state: empty; this method remembers nothing.
    """
    averaged: Tensor = yield Send(round, x, into=x)
    return averaged
