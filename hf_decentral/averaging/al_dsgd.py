"""Adjacent leaders: every worker is pulled towards its best neighbour and its best connected one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from math import inf, isfinite

import torch
from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.scaled import add_, space
from hf_decentral.codecs import Span
from hf_decentral.errors import out_of_range
from hf_decentral.errors.corrections import wrong_losses
from hf_decentral.rounds import Round, Row
from hf_decentral.transport.wire import Send

logger = logging.getLogger(__name__)


def al_dsgd(best: float, degree: float) -> Averaging:
    """``x <- M (x + u - lr best (x - x_b) - lr degree (x - x_d))``, the pulls at the parameters before the
    local update ``u`` (AL-DSGD: He et al. 2024, arXiv 2405.11389).

    Of a worker and those whom it hears in a round, ``b`` has the smallest loss and ``d`` hears most; where
    nobody beats the worker itself, nothing pulls. Each worker's loss is told by ``gossip(optimizer).loss``
    (``[W]`` for the workers here) before ``step()``, and all workers' are exchanged; one that is no number,
    or is not told, never leads. The pulls do not keep the mean of the workers. A worker sends its parameters
    once more to each that it leads. The published method also takes several graphs in turns and gives leaders
    a larger weight, which is left to the topology.

    Args:
        best: strength of the pull towards the smallest loss, 0 or more.
        degree: strength of the pull towards the one that hears most, 0 or more.
    """
    for name, value in (("best", best), ("degree", degree)):
        if not 0 <= value < inf:
            raise out_of_range(name, value, "0 or more", "0.1 is the default, 0 pulls nowhere")
    strength = best + degree

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        before = state["before"]
        if strength and not round.idle:
            losses = yield Send(_everybody(round.workers, state), _told(x, round.workers, state))
            ranks = [loss if isfinite(loss) else inf for loss in losses[0].tolist()]
            pull = _pull(_leaders(round, ranks), _connected(round, state), best / strength)
            if not pull.idle:
                there = yield Send(pull, before, into=space(state, "there", x))
                add_(x, there.sub_(before), state.local.rate, strength)
        averaged: Tensor = yield Send(round, x, into=x)
        before.copy_(averaged)
        return averaged

    return Averaging(exchange, _prepare, orders=("atc",), informed=True, delays=False)


def _prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
    state.setdefault("before", x.clone())


def _everybody(workers: int, state: State) -> Round:
    found: Round = state.scratch.setdefault("everybody", Round.average([range(workers)], workers))
    return found


def _told(x: Tensor, workers: int, state: State) -> Tensor:
    """The losses of the workers here, ``[w, W]``: each in its own column, so that a mean holds them all."""
    here, loss = state.local.workers, state.local.loss
    payload: Tensor = state.scratch.setdefault(
        "losses", x.new_zeros((len(here), workers), dtype=torch.float32)
    )
    if loss is None:
        _warn()
        loss = torch.full((len(here),), torch.nan)
    if loss.numel() != len(here):
        raise wrong_losses(loss.numel(), len(here))
    payload.zero_()
    payload[range(len(here)), here] = loss.detach().flatten().to(payload)
    return payload


@cache
def _warn() -> None:
    logger.warning(
        "al_dsgd heard no loss, so that nobody leads by it; set gossip(optimizer).loss to the losses of the "
        "workers here before each step"
    )


def _leaders(round: Round, ranks: Sequence[float]) -> list[int]:
    """Whom each worker follows: the one of the lowest rank that it hears, or itself unless that is lower."""
    best: dict[int, int] = {}  # a row object shared by a group is looked through once
    found = []
    for i, row in enumerate(round.rows):
        if id(row) not in best:
            best[id(row)] = min((j for j, _ in row), key=lambda j: (ranks[j], j))
        leader = best[id(row)]
        found.append(leader if ranks[leader] < ranks[i] else i)
    return found


def _connected(round: Round, state: State) -> list[int]:
    """The one that hears most workers, in place of the one of the smallest loss."""
    kept = state.scratch.get("connected")
    if kept is None or kept[0] is not round:
        degrees = [-float(sum(j != i for j, _ in row)) for i, row in enumerate(round.rows)]
        kept = state.scratch["connected"] = round, _leaders(round, degrees)
    leaders: list[int] = kept[1]
    return leaders


def _pull(best: Sequence[int], connected: Sequence[int], share: float) -> Round:
    """Row ``i``: ``share`` of the one, the rest of the other."""
    rows: list[Row] = []
    for b, d in zip(best, connected, strict=True):
        weights = {b: share} if b != d else {b: 1.0}
        weights.setdefault(d, 1.0 - share)
        rows.append(tuple(sorted((j, weight) for j, weight in weights.items() if weight)))
    return Round(tuple(rows))
