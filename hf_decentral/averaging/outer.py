"""Outer optimizers: workers train apart, and the way that they went together is a step of its own.

Each keeps an anchor, the parameters of the last round, and a momentum. Between the rounds of its topology (as
``every(48, complete)``) nothing happens. The momentum of the local optimizer is kept across rounds. A worker
that is alone takes no outer steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.scaled import remember, wide
from hf_decentral.codecs import Span
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send

Step = Callable[[Tensor, State, slice], None]
"""Takes an outer step on ``x[:, span]``, which holds the average and then the new anchor."""


def slowmo(beta: float, alpha: float) -> Averaging:
    """Slow momentum (Wang et al. 2019, arXiv 1910.00643): ``u <- beta u + (anchor - mean) / lr``, then
    ``anchor <- anchor - alpha lr u``. With ``beta = 0, alpha = 1`` it is local SGD.

    Args:
        beta: momentum, 0 or more and below 1.
        alpha: outer learning rate.
    """

    def step(x: Tensor, state: State, span: slice) -> None:
        rate, anchor, momentum = state.local.rate, state["anchor"], state["momentum"]
        way = _way(x, anchor, state)
        # alpha lr (beta u + way / lr), written so that a rate of zero divides nothing.
        moved = momentum.mul(beta)
        anchor.sub_(moved.mul(rate).add_(way), alpha=alpha)
        if isinstance(rate, Tensor):
            moved.add_(torch.where(rate > 0, way / rate, torch.zeros_like(way)))
        elif rate > 0:
            moved.add_(way, alpha=1 / rate)
        momentum.copy_(moved)
        x.copy_(anchor)

    return Averaging(_outer(step), _prepare, orders=("atc",), whole=True, informed=True)


def diloco(rate: float, momentum: float) -> Averaging:
    """DiLoCo (Douillard et al. 2023, arXiv 2311.08105): Nesterov's momentum on ``anchor - mean``.

    Args:
        rate: outer learning rate.
        momentum: of Nesterov's kind.
    """
    return Averaging(_outer(_nesterov(rate, momentum)), _prepare, orders=("atc",), whole=True)


def noloco(rate: float, momentum: float) -> Averaging:
    """NoLoCo (Kolehmainen et al. 2025, arXiv 2506.10911): an outer step without a talk of all workers.

    ``m <- mu m + rate (sum_j w_ij x_j - anchor_i);  anchor <- anchor + m``. The paper sends anchor and way
    apart; with one rate for the way and for the pull towards the others' anchors, their sum is enough.

    Args:
        rate: outer learning rate.
        momentum: of the heavy ball.
    """

    def step(x: Tensor, state: State, span: slice) -> None:
        anchor, velocity = state["anchor"], state["momentum"]
        velocity.mul_(momentum).sub_(_way(x, anchor, state), alpha=rate)
        x.copy_(anchor.add_(velocity))

    return Averaging(_outer(step), _prepare, orders=("atc",), joins=False)


def streaming_diloco(fragments: int, rate: float, momentum: float, alpha: float) -> Averaging:
    """Streaming DiLoCo (Douillard et al. 2025, arXiv 2501.18512): a fragment of the parameters in each round.

    What arrives is mixed with what the worker has reached meanwhile: ``(1 - alpha) anchor + alpha x``. The
    delay of ``decentralize`` is the time that a fragment travels. A fragment is an equal part of each bucket.

    Args:
        fragments: parts, which take turns.
        rate: outer learning rate.
        momentum: of Nesterov's kind.
        alpha: share of the worker's own; 0 is DiLoCo, 1 never sees the others.
    """
    outer = _nesterov(rate, momentum)

    def prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
        _prepare(x, rounds, layout, state)
        state.setdefault("turn", 0)

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        part = x[:, _fragment(x, state["turn"], fragments)]
        yield Send(round, part, into=part)
        return x

    def land(x: Tensor, arrived: Tensor, sent: Tensor, state: State) -> None:
        span = _fragment(x, state["turn"], fragments)
        outer(arrived[:, span], state, span)
        x[:, span].mul_(alpha).add_(arrived[:, span], alpha=1 - alpha)
        state["turn"] += 1

    return Averaging(exchange, prepare, land=land, orders=("atc",), whole=True)


def _outer(step: Step) -> Callable[[Tensor, Round, State], Exchange]:
    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        averaged: Tensor = yield Send(round, x, into=x)
        if not round.idle:
            step(averaged, state, slice(None))
        return averaged

    return exchange


def _nesterov(rate: float, momentum: float) -> Step:
    def step(x: Tensor, state: State, span: slice) -> None:
        anchor, velocity = state["anchor"][:, span], state["momentum"][:, span]
        way = _way(x, anchor, state)
        velocity.mul_(momentum).add_(way)
        anchor.sub_(way.add_(velocity, alpha=momentum), alpha=rate)
        x.copy_(anchor)

    return step


def _prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
    remember(state, "momentum", x)
    if "anchor" not in state:
        state["anchor"] = x.to(wide(x), copy=True)


def _way(x: Tensor, anchor: Tensor, state: State) -> Tensor:
    """From the average back to the anchor."""
    way: Tensor | None = state.scratch.get("way")
    if way is None or way.shape[1] < x.shape[1]:  # fragments differ by a number
        state.scratch["way"] = way = anchor.new_empty(x.shape)
    difference: Tensor = torch.sub(anchor, x, out=way[:, : x.shape[1]])
    return difference


def _fragment(x: Tensor, turn: int, fragments: int) -> slice:
    """Equal parts, the first ones longer by one where it does not come out even."""
    size, longer = divmod(x.shape[1], fragments)
    k = turn % fragments
    begin = k * size + min(k, longer)
    return slice(begin, begin + size + (k < longer))
