"""Quasi-global momentum: a momentum of what the average did to the parameters, not of local gradients."""

from __future__ import annotations

from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.gradient_steps import check_beta, sgd_alone
from hf_decentral.averaging.scaled import inverse, remember_momentum
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send


def qg_dsgdm(beta: float) -> Averaging:
    """``x+ = M (x - lr (beta m + g));  m <- beta m + (1 - beta) (x - x+) / lr`` (Lin et al. 2021, arXiv
    2102.04761).

    On the complete graph it is SGD with a momentum of the mean gradient; elsewhere each worker's momentum
    follows what it and its neighbours did. It steps like SGD with heavy-ball momentum ``beta``, ``1 / (1 -
    beta)`` times the rate, and sends no more than a plain average. Where the rate is 0, a step adds nothing
    to ``m``.

    Args:
        beta: of the momentum, from 0 to below 1.
    """
    check_beta(beta)

    def gradient(g: Tensor, x: Tensor, state: State) -> None:
        g.add_(state["momentum"], alpha=beta)

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        averaged: Tensor = yield Send(round, x, into=x)
        m, moved = state["momentum"], state["before"]
        moved.sub_(averaged).mul_(inverse(state.local.rate))
        m.mul_(beta).add_(moved, alpha=1 - beta)
        moved.copy_(averaged)
        return averaged

    return Averaging(
        exchange,
        remember_momentum,
        gradient=gradient,
        orders=("atc",),
        informed=True,
        single=True,
        joins=False,
        delays=False,
        check_optimizer=sgd_alone("qg_dsgdm"),
    )
