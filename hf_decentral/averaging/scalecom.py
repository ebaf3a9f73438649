"""One worker in turn says which few numbers travel, so that their sum over all workers stays as short."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from hf_decentral.averaging.base import Averaging, Exchange, Joined, State
from hf_decentral.averaging.scaled import remember, space
from hf_decentral.codecs import Codec, Span
from hf_decentral.codecs.base import aligned, finite_
from hf_decentral.codecs.sparse import kept
from hf_decentral.errors import out_of_range
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send


def scalecom(fraction: float, beta: float) -> Averaging:
    """The mean of a few numbers of each update, the same for all workers (ScaleCom: Chen et al. 2020, arXiv
    2104.11125), with the low-pass memory of what was not sent.

    With ``u_i`` what worker ``i`` added to the parameters that all had after the round before, ``S`` the
    places of the ``k`` largest numbers of the leader's ``p`` (in round ``t`` worker ``t mod W`` leads), and
    ``[.]_S`` zero outside of them::

        p_i = lost_i + u_i;  x = anchor + mean_j [p_j]_S;  lost_i <- lost_i + beta (u_i - [p_i]_S)

    All workers have the same ``x`` after each round. With ``beta = 1``, ``x + mean(lost)`` moves by the mean
    update, whatever is left out.

    Args:
        fraction: share of the numbers that is sent, at least one; in (0, 1].
        beta: how fast the memory takes up what was not sent, in (0, 1].

    Raises:
        SettingsError: one of them is out of range.
    """
    for name, value in (("fraction", fraction), ("beta", beta)):
        if not 0 < value <= 1:
            raise out_of_range(name, value, "more than 0 and at most 1", "leave it out for the default")

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        if round.idle or not x.shape[1]:
            yield Joined()
            return x
        anchor, lost = state["anchor"], state["lost"]
        turn = state.get("sent", 0)
        # What a worker added, as a difference of numbers that are near each other.
        update = finite_(torch.sub(x, anchor, out=space(state, "update", x)))
        meant = torch.add(update, lost, out=space(state, "meant", x))
        count, leader = kept(fraction, x.shape[1]), turn % round.workers
        if count < x.shape[1]:
            places = yield from _chosen(meant, count, leader, round, state)
        else:
            places = torch.arange(count, device=x.device).expand(len(x), -1)
        own = meant.gather(1, places)
        mean = yield Send(round, own)
        yield Joined()
        update.scatter_add_(1, places, own.neg_())
        lost.add_(update, alpha=beta)
        x.copy_(anchor)
        x.scatter_add_(1, places, mean.to(x.dtype))
        anchor.copy_(x)
        state["sent"] = turn + 1
        return x

    return Averaging(exchange, _prepare, background=True, orders=("atc",), whole=True)


def _prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
    """The point that all have in common; nothing is lost yet."""
    if "anchor" not in state:
        state["anchor"] = x.clone()
    remember(state, "lost", x)


def _chosen(meant: Tensor, count: int, leader: int, round: Round, state: State) -> Exchange:
    """The places ``[W, k]`` of the leader's largest numbers, ascending."""
    codec = _Places()
    if "code" not in state.scratch:
        state.scratch["code"] = meant.new_zeros((len(meant), codec.size(count)), dtype=torch.uint8)
    code = state.scratch["code"]
    if leader in state.local.workers:
        row = state.local.workers.index(leader)
        with record_function("hf_decentral: encode"):
            codec.encode(meant[row], code[row][: 4 * count], 0)
    heard = meant.new_empty((len(meant), count), dtype=torch.float64)
    places: Tensor = yield Send(_from(leader, round.workers), code, into=heard, codec=codec)
    return places.to(torch.int64)


@lru_cache(maxsize=64)
def _from(leader: int, workers: int) -> Round:
    """Everybody hears the leader alone."""
    row = ((leader, 1.0),)
    return Round((row,) * workers)


class _Places(Codec):
    """Where the largest numbers are, in four bytes each; a message for ``k`` of them decodes to ``[k]``."""

    def size(self, numel: int) -> int:
        """See :meth:`Codec.size`."""
        return aligned(4 * numel)

    def contraction(self, numel: int) -> float:
        """It sends no numbers."""
        return 0.0

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """Write as many places as ``code`` has room for."""
        words = code.view(torch.int32)
        size = torch.abs(x, out=self._room("size", x.numel(), x, x.dtype))
        words.copy_(torch.topk(size, len(words), sorted=False).indices.sort().values)

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """See :meth:`Codec.add_`."""
        return out.add_(code[: 4 * out.numel()].view(torch.int32), alpha=weight)
