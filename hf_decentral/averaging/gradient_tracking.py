"""Gradient tracking: every worker steps along its estimate of the mean gradient of all."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.scaled import add_, inverse, remember, space
from hf_decentral.codecs import Span
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send


def gradient_tracking() -> Averaging:
    """With ``u`` the local update of any optimizer, and a correction ``c`` that sums to 0 over the workers:

    ``x <- M (x + u + c);  c <- M (c + u) - u``

    For SGD these are the iterates of ``x <- M (x - lr y);  y <- M y + g+ - g`` (DIGing: Nedić et al. 2017,
    arXiv 1607.03218) with ``lr y = -(u + c)``, also where the rate changes: ``c`` is kept in units of the
    gradient. With a constant rate it ends in the exact optimum, however unequal the data and whatever the
    rounds; in an idle round the correction still acts. Two vectors travel in one message.
    """
    return Averaging(_exchange, _prepare, orders=("atc",), informed=True, joins=False, delays=False)


def _prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
    remember(state, "correction", x)
    state.setdefault("before", x.clone())


def _exchange(x: Tensor, round: Round, state: State) -> Exchange:
    c, before, rate = state["correction"], state["before"], state.local.rate
    if round.idle:  # c stays as it is
        yield Send(round, x, into=x)
        before.copy_(add_(x, c, rate))
        return x
    size, per_rate = x.shape[1], inverse(rate)
    payload = space(state, "payload", x, 2)
    payload[:, size:].copy_(x).sub_(before).mul_(per_rate).add_(c)
    add_(payload[:, :size].copy_(x), c, rate)
    sums = yield Send(round, payload, into=payload)
    c.copy_(before).sub_(x).mul_(per_rate).add_(sums[:, size:])
    before.copy_(x.copy_(sums[:, :size]))
    return x
