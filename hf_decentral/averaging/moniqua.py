"""Averages of parameters sent modulo a bound: few bits, no memory, for workers that are near each other."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import cast

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from hf_decentral.averaging.base import Averaging, Exchange, Joined, State
from hf_decentral.averaging.scaled import space
from hf_decentral.codecs import Modulo, Span
from hf_decentral.errors import out_of_range
from hf_decentral.errors.averaging import workers_too_far
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send

# A share of half the bound. Differences of many parameters spread: before one of them passes half the bound,
# and would be decoded as another number, some are seen in the last eighth of it.
MARGIN = 0.125


def moniqua(bits: float, bound: float) -> Averaging:
    """Send ``x mod bound`` in a few bits; a receiver finds the whole number next to its own (Moniqua: Lu and
    De Sa 2020, arXiv 2002.11787). Nothing is remembered, and what rounding adds is smaller than a step.

    ``x_i <- x_i + sum_j w_ij (C_j - C_i)``, right while ``|x_i - x_j| < bound / 2`` for every parameter.

    Args:
        bits: 8 or 4.
        bound: about four times the largest difference between neighbours.

    Raises:
        SettingsError: another number of bits, or a bound that is not above 0.
        ParameterError: (in a round) workers nearly as far apart as half the bound.
    """
    if bits not in (4, 8):
        raise out_of_range("bits", bits, "8 or 4", "8 is the default")
    if not 0 < bound < inf:
        advice = "give about four times the largest difference of a parameter between neighbours"
        raise out_of_range("bound", bound, "a number above 0", advice)

    def prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
        codec = state.scratch["codec"] = Modulo(int(bits), bound, len(x)).to(x.device)
        state.scratch["code"] = x.new_zeros((len(x), codec.size(x.shape[1])), dtype=torch.uint8)

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        if round.idle or not x.shape[1]:
            yield Joined()
            return x
        codec = cast(Modulo, state.scratch["codec"])
        code, moved = state.scratch["code"], space(state, "moved", x).copy_(x)
        codec.widest.zero_()
        with record_function("hf_decentral: encode"):
            for row, word in zip(moved, code, strict=True):
                codec.encode(row, word, state.get("sent", 0))
        yield Send(round, code, into=moved, codec=codec)
        yield Joined()
        _near(codec.widest, bound, round, state)
        x.add_(moved)
        state["sent"] = state.get("sent", 0) + 1
        return x

    return Averaging(exchange, prepare, background=True)


def _near(widest: Tensor, bound: float, round: Round, state: State) -> None:
    """See that nobody here is too far from those whom it heard."""
    for row, distance in enumerate(widest.tolist()):
        if distance > (1 - MARGIN) * bound / 2:
            worker = state.local.workers[row]
            raise workers_too_far(worker, round.senders(worker), distance, bound)
