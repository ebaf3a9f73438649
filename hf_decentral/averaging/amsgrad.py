"""Adaptive steps whose second moments agree among the workers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.gradient_steps import sgd_alone
from hf_decentral.averaging.scaled import space, wide
from hf_decentral.codecs import Span
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send

_STATE = ("first", "second", "largest", "tracked")


def amsgrad(beta1: float, beta2: float, least: float) -> Averaging:
    """Decentralized AMSGrad (Chen et al. 2021, arXiv 2109.03194, algorithm 3).

    Where moments stay on their workers, each has its own metric, and the workers may agree on a point that is
    no optimum. Here the second moments are tracked by an average of their own, which travels with the
    parameters: ``u <- M u``, then ``x <- M x - lr m / sqrt(max(u, least))``, then ``u <- u + v+ - v`` with
    ``v`` the largest second moment so far; the sum of ``u`` over the workers is that of ``v``.

    The gradient is replaced by the direction, so the local optimizer is plain SGD.

    Args:
        beta1: of the first moment.
        beta2: of the second moment.
        least: a lower bound of ``u``, and its value at the beginning.
    """

    def prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
        for name in _STATE:
            if name not in state:
                first = least if name in ("largest", "tracked") else 0.0
                state[name] = torch.full_like(x, first, dtype=wide(x))

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        size = x.shape[1]
        sent = space(state, "sent", x, 2)
        sent[:, :size].copy_(x)
        sent[:, size:].copy_(state["tracked"])
        arrived: Tensor = yield Send(round, sent, into=sent)
        state["tracked"].copy_(arrived[:, size:])
        return x.copy_(arrived[:, :size])

    def gradient(g: Tensor, x: Tensor, state: State) -> None:
        first, second, largest, tracked = (state[name] for name in _STATE)
        first.mul_(beta1).add_(g, alpha=1 - beta1)
        second.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        step = torch.clamp(tracked, min=least, out=space(state, "step", x))
        g.copy_(step.rsqrt_().mul_(first))
        tracked.sub_(largest)
        torch.maximum(largest, second, out=largest)
        tracked.add_(largest)

    return Averaging(
        exchange,
        prepare,
        gradient=gradient,
        orders=("awc",),
        single=True,
        delays=False,
        check_optimizer=sgd_alone("amsgrad"),
    )
