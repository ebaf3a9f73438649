"""DecentLaM: heavy-ball momentum of the step with its average, so that momentum adds no bias."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.gradient_steps import check_beta, sgd_alone
from hf_decentral.averaging.scaled import add_, inverse, remember_momentum
from hf_decentral.errors.corrections import must_be_symmetric, must_stay
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.transport.wire import Send


def decentlam(beta: float) -> Averaging:
    """``g~ = (x - M (x - lr g)) / lr;  m <- beta m + g~;  x <- x - lr m`` (Yuan et al. 2021, arXiv
    2104.11981).

    It ends where plain averaging ends with the same rate, whatever ``beta``; with local momentum the bias is
    that of a rate of ``lr / (1 - beta)``. The weights must be symmetric and stay the same: with rounds that
    take turns, the momentum of differences grows without bound.

    Args:
        beta: of the momentum, from 0 to below 1.
    """
    check_beta(beta)

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        averaged: Tensor = yield Send(round, x, into=x)
        m, before, rate = state["momentum"], state["before"], state.local.rate
        m.mul_(beta)
        gained = before.sub_(averaged).mul_(inverse(rate))  # g~
        add_(averaged, m, rate, -1.0)  # x - lr (beta m + g~) without a division where the rate is 0
        m.add_(gained)
        before.copy_(averaged)
        return averaged

    return Averaging(
        exchange,
        remember_momentum,
        orders=("atc",),
        informed=True,
        single=True,
        joins=False,
        delays=False,
        check_topology=_check,
        check_optimizer=sgd_alone("decentlam"),
    )


def _check(topology: Topology) -> None:
    rounds = topology.repeated()
    if rounds is None or len(rounds) != 1 or topology.least:
        raise must_stay("decentlam", topology.name)
    weights = rounds[0].matrix()
    if not torch.allclose(weights, weights.T, rtol=0, atol=1e-12):
        raise must_be_symmetric("decentlam", topology.name)
