"""D2 (exact diffusion): the bias of unequal data is taken out with what the last round changed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.scaled import remember, space
from hf_decentral.codecs import Span
from hf_decentral.errors.corrections import must_stay, would_grow
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.transport.wire import Send

_SLACK = 1e-9


def d2() -> Averaging:
    """With ``h`` the parameters after the local step, of whatever optimizer, and a correction ``c``:

    ``x <- M (h + c);  c <- x - h``

    For SGD these are the iterates of ``x+ = M (2 x - x- - lr (g - g-))`` (Tang et al. 2018, arXiv 1803.07068;
    exact diffusion: Yuan et al. 2017, arXiv 1702.05122): with a constant rate the exact optimum, for the
    bytes of a plain average. The weights must stay the same, with eigenvalues above -1/3: ``lazy(ring)``.
    ``c`` sums up the rounding of all rounds, so that long runs want single precision or better.
    """
    return Averaging(_exchange, _prepare, orders=("atc",), joins=False, delays=False, check_topology=_check)


def _prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
    remember(state, "correction", x)


def _exchange(x: Tensor, round: Round, state: State) -> Exchange:
    c = state["correction"]
    payload = space(state, "payload", x)
    sums = yield Send(round, payload.copy_(x).add_(c), into=payload)
    torch.sub(sums, x, out=c)
    return x.copy_(sums)


def _check(topology: Topology) -> None:
    rounds = topology.repeated()
    if rounds is None or len(rounds) != 1 or topology.least:
        raise must_stay("d2", topology.name)
    factor = growth(rounds[0].matrix())
    if not factor < 1 - _SLACK:
        raise would_grow("d2", topology.name, factor)


def growth(weights: Tensor) -> float:
    """By how much a step without gradients multiplies a difference between workers at worst.

    That is the largest root of ``z^2 - 2 l z + l`` over the eigenvalues ``l`` of ``M`` without the mean; for
    real ones it is below 1 from -1/3 on, exclusive, up to 1.
    """
    rest = weights - 1.0 / len(weights)
    symmetric = torch.equal(rest, rest.T)
    found = torch.linalg.eigvalsh(rest).to(torch.complex128) if symmetric else torch.linalg.eigvals(rest)
    root = (found * found - found).sqrt()
    return float(torch.maximum((found + root).abs(), (found - root).abs()).max())
