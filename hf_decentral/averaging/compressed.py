"""Averages of encoded parameters whose loss is kept and sent later.

Both methods move ``x_i`` by ``gamma sum_j w_ij (C_j - C_i)``, where ``C_j`` is what worker ``j``'s neighbours
decode. Whatever is lost on the way, what one worker gains another gives: the mean over the workers is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from hf_decentral.averaging.base import Averaging, Exchange, Joined, State
from hf_decentral.averaging.scaled import space, wide
from hf_decentral.codecs import Codec, Span
from hf_decentral.codecs.base import chunks, finite_
from hf_decentral.errors.averaging import codec_expands, codec_loses_all
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send

_MANY = 1 << 20


def fed_back(codec: Codec, gamma: float = 1.0) -> Averaging:
    """Encode the parameters, and add what was lost to what is sent next (DeepSqueeze: Tang et al. 2019,
    arXiv 1907.07346). For codecs that lose little: the loss of each round is seen in the parameters.

    ``v = x + d;  d <- v - C(v);  x_i <- x_i + gamma (sum_j w_ij C_j - C_i)``

    Args:
        codec: makes the messages.
        gamma: how far to go; 1 with codecs that lose little, smaller the more they lose.
    """

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        if round.idle or not x.shape[1]:
            yield Joined()
            return x
        fitted = cast(Codec, state.scratch["codec"])
        code, moved = _scratch(x, fitted, state)
        moved.copy_(x)
        if "lost" in state:
            moved.add_(state["lost"])
        _encode(fitted, moved, code, state)
        yield from _differences(fitted, round, code, moved)
        if "lost" not in state:
            state["lost"] = torch.zeros_like(moved)
        for own, lost, word, step in zip(x, state["lost"], code, moved, strict=True):
            fitted.add_(lost.add_(own), word, -1.0)
            for span in chunks(own):  # each span is still in the cache for the second line
                finite_(lost[span])
                own[span].add_(step[span], alpha=gamma)
        state["sent"] = state.get("sent", 0) + 1
        return x

    def prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
        _begin_anew(x, codec, layout, state)

    return Averaging(exchange, prepare, background=True)


def remembered(codec: Codec, gamma: float) -> Averaging:
    """Encode the difference to what the neighbours of this round know already (CHOCO-SGD: Koloskova et al.
    2019, arXiv 1902.00340, with one memory for each round of the topology's period). Any codec; it needs two
    vectors as long as the parameters for each of those rounds.

    ``q = C(x - known);  gap_i += sum_j w_ij q_j - q_i;  known += q;  x += gamma gap``

    Args:
        codec: makes the messages.
        gamma: how far to go; 1 with exact codecs, smaller the more a codec loses.
    """

    def prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
        _begin_anew(x, codec, layout, state)
        for round in rounds:
            if not round.idle and f"known {round.key}" not in state:
                state[f"known {round.key}"] = x.to(wide(x), copy=True)
                state[f"gap {round.key}"] = torch.zeros_like(state[f"known {round.key}"])

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        if round.idle or not x.shape[1]:
            yield Joined()
            return x
        fitted = cast(Codec, state.scratch["codec"])
        known, gap = state[f"known {round.key}"], state[f"gap {round.key}"]
        code, moved = _scratch(x, fitted, state)
        torch.sub(x, known, out=moved)
        _encode(fitted, moved, code, state)
        yield from _differences(fitted, round, code, moved)
        for own, word, row in zip(known, code, range(len(x)), strict=True):
            fitted.add_(own, word, 1.0)
            for span in chunks(own):
                x[row, span].add_(gap[row, span].add_(moved[row, span]), alpha=gamma)
        state["sent"] = state.get("sent", 0) + 1
        return x

    return Averaging(exchange, prepare, background=True, repeats=True)


def _begin_anew(x: Tensor, codec: Codec, layout: Sequence[Span], state: State) -> None:
    """A codec for this bucket that is of use.

    Raises:
        SettingsError: it sends more than the parameters, or may lose all of them.
    """
    fitted, numel, width = codec.fit(layout), x.shape[1], x.element_size()
    if numel and fitted.contraction(numel) <= 0:
        raise codec_loses_all(type(codec).__name__, numel)
    # Of a few numbers a message may be the longer one only because it is filled up.
    if fitted.size(numel) > width * numel and codec.size(_MANY) > width * _MANY:
        raise codec_expands(type(codec).__name__, fitted.size(numel), width * numel)
    state.scratch["codec"] = fitted


def _differences(codec: Codec, round: Round, code: Tensor, moved: Tensor) -> Exchange:
    """Write ``sum_j w_ij C_j - C_i`` to ``moved`` behind the computing."""
    yield Send(round, code, into=moved, codec=codec)
    for word, row in zip(code, moved, strict=True):
        codec.add_(row, word, -1.0)
    yield Joined()
    return moved


def _encode(codec: Codec, x: Tensor, code: Tensor, state: State) -> None:
    with record_function("hf_decentral: encode"):
        for row, word in zip(x, code, strict=True):
            codec.encode(row, word, state.get("sent", 0))


def _scratch(x: Tensor, codec: Codec, state: State) -> tuple[Tensor, Tensor]:
    """The messages ``[W, size]`` of the workers here, and a vector ``[W, P]`` each."""
    if "code" not in state.scratch:
        state.scratch["code"] = x.new_zeros((len(x), codec.size(x.shape[1])), dtype=torch.uint8)
    return state.scratch["code"], space(state, "moved", x)
