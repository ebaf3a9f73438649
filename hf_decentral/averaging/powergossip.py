"""Neighbours find the directions in which their matrices differ most, together, and move along them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from hf_decentral.averaging.base import Averaging, Exchange, Joined, State
from hf_decentral.averaging.scaled import space, wide
from hf_decentral.codecs import Span
from hf_decentral.codecs.base import finite_
from hf_decentral.codecs.low_rank import matrices, shorter
from hf_decentral.errors.parameters import wrong_checkpoint
from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send


def powergossip(rank: int) -> Averaging:
    """A step of a power iteration on each neighbour's difference (PowerGossip: Vogels et al. 2020, arXiv
    2008.01425). It remembers a thin matrix for each neighbour, and needs no further setting.

    For every pair that talks, with ``D = X_j - X_i`` for ``i < j`` and ``Q`` from the round before::

        P = orthonormal(D Q);  Q <- D^T P;  X_i += w_ij P Q^T;  X_j -= w_ij P Q^T

    which takes two messages, ``X Q`` and ``X^T P``, and is a projection of ``D``. All pairs see the same
    ``X``; they talk in turns in which nobody has two partners. Parameters with one axis, and matrices that
    two thin ones would not make smaller, are sent as they are.

    Args:
        rank: columns of ``P`` and ``Q``.
    """

    def prepare(x: Tensor, rounds: Sequence[Round], layout: Sequence[Span], state: State) -> None:
        parts = state.scratch["parts"] = _Parts(rank, layout)
        for round in rounds:
            if not round.idle:
                name, shape = f"directions {round.key}", (len(x), len(round.matchings), parts.right)
                if name not in state:
                    state[name] = _start(parts.right, x).expand(shape).clone()
                elif state[name].shape != shape:
                    raise wrong_checkpoint(
                        f"averaging '{name}' of {list(state[name].shape)}", f"one of {list(shape)}"
                    )

    def exchange(x: Tensor, round: Round, state: State) -> Exchange:
        if round.idle or not x.shape[1]:
            yield Joined()
            return x
        turn = _Turn.of(x, round, state)
        for k in range(len(round.matchings)):
            yield from _talk(turn, k)
        yield Joined()
        x.add_(turn.moved)
        turn.known.copy_(turn.found)
        return x

    return Averaging(exchange, prepare, background=True, repeats=True, mutual=True)


class _Thin(NamedTuple):
    """A matrix in a bucket, and where its products with thin ones lie in the two messages."""

    place: slice
    rows: int
    columns: int
    first: slice
    second: slice

    def matrix(self, x: Tensor) -> Tensor:
        """``[m, n]`` out of a bucket ``[P]``."""
        return x[self.place].view(self.rows, self.columns)

    def product(self, message: Tensor) -> Tensor:
        """``[m, rank]`` out of the first message."""
        return message[self.first].view(self.rows, -1)

    def image(self, message: Tensor) -> Tensor:
        """``[n, rank]`` out of the second message."""
        return message[self.second].view(self.columns, -1)


class _Parts:
    """How the numbers of a bucket lie in the two messages of a pair.

    Attributes:
        thin: matrices of which products travel.
        plain: where the other parameters lie in the bucket, and where in the first message.
        left: numbers of the first message.
        right: numbers of the second one.
    """

    def __init__(self, rank: int, layout: Sequence[Span]) -> None:
        self.thin: list[_Thin] = []
        self.plain: list[tuple[slice, slice]] = []
        self.left = self.right = 0
        for offset, rows, columns in matrices(layout):
            place, first = slice(offset, offset + rows * columns), self.left
            if shorter(rank, rows, columns):
                self.left += rank * rows
                second = slice(self.right, self.right + rank * columns)
                self.right = second.stop
                self.thin.append(_Thin(place, rows, columns, slice(first, self.left), second))
            else:
                self.left += rows * columns
                self.plain.append((place, slice(first, self.left)))


class _Turn(NamedTuple):
    """What a round works on.

    Attributes:
        parts: how the messages are made.
        round: who talks.
        weights: for each worker here and each matching the weight of the partner, negative where its number
            is the higher one; 0 without a partner.
        x: the parameters ``[W, P]``, only read.
        known: the directions of each pair before the round, ``[W, matchings, right]``.
        found: the same after it.
        moved: what is to be added to the parameters, ``[W, P]``.
        messages: the own and the partner's, first ``[W, left]``, then ``[W, right]``.
    """

    parts: _Parts
    round: Round
    weights: list[list[float]]
    x: Tensor
    known: Tensor
    found: Tensor
    moved: Tensor
    messages: tuple[Tensor, Tensor, Tensor, Tensor]

    @staticmethod
    def of(x: Tensor, round: Round, state: State) -> _Turn:
        """With memory that is kept from round to round."""
        room, parts, known = state.scratch, state.scratch["parts"], state[f"directions {round.key}"]
        if "messages" not in room:
            lengths = (parts.left, parts.left, parts.right, parts.right)
            room["messages"] = tuple(known.new_zeros(len(x), length) for length in lengths)
        if round.key not in room:
            weights = [_signed(round, worker) for worker in state.local.workers]
            room[round.key] = weights, torch.empty_like(known)
        weights, found = room[round.key]
        values = x if x.dtype == known.dtype else space(state, "wide", x).copy_(x)
        moved = space(state, "moved", x).zero_()
        return _Turn(parts, round, weights, values, known, found, moved, room["messages"])


def _signed(round: Round, worker: int) -> list[float]:
    """See :attr:`_Turn.weights`."""
    heard = dict(round.rows[worker])
    partners = [swap.rows[worker][0][0] for swap in round.swaps]
    return [0.0 if j == worker else heard[j] if worker < j else -heard[j] for j in partners]


def _talk(turn: _Turn, k: int) -> Exchange:
    """All pairs of one matching find a few directions, and add what they move along them to ``moved``."""
    parts, swap = turn.parts, turn.round.swaps[k]
    first, their_first, second, their_second = turn.messages
    with record_function("hf_decentral: encode"):
        for x, message, known in zip(turn.x, first, turn.known[:, k], strict=True):
            for part in parts.thin:
                torch.mm(part.matrix(x), part.image(known), out=part.product(message))
            for place, there in parts.plain:
                message[there] = x[place]
    yield Send(swap, first, into=their_first)
    for i, weights in enumerate(turn.weights):
        if not weights[k]:
            continue  # nobody to talk to
        gap = _gap(first[i], their_first[i], weights[k])
        for part in parts.thin:
            product = part.product(gap)
            product.copy_(torch.linalg.qr(product).Q)
            torch.mm(part.matrix(turn.x[i]).T, product, out=part.image(second[i]))
        for place, there in parts.plain:
            turn.moved[i, place].add_(gap[there], alpha=weights[k])
    if parts.thin:
        yield Send(swap, second, into=their_second)
        for i, weights in enumerate(turn.weights):
            image = _gap(second[i], their_second[i], weights[k])
            for part in parts.thin:
                _follow(part, their_first[i], image, turn.moved[i], weights[k])
                _remember(part, image, turn.known[i, k], turn.found[i, k])
    return turn.moved


def _gap(own: Tensor, theirs: Tensor, weight: float) -> Tensor:
    """The higher worker's numbers less the lower one's, in the place of ``theirs``: the same bits on both
    sides. Nothing where one of them is no number."""
    theirs.sub_(own)
    return finite_(theirs.neg_() if weight < 0 else theirs)


def _follow(part: _Thin, product: Tensor, image: Tensor, moved: Tensor, weight: float) -> None:
    """Go along ``P Q^T``, towards the higher worker or, with a negative weight, the lower one."""
    part.matrix(moved).addmm_(part.product(product), part.image(image).T, alpha=weight)


def _remember(part: _Thin, image: Tensor, known: Tensor, found: Tensor) -> None:
    """The next round begins with the images; with the old directions where an image is nothing."""
    new = part.image(image)
    part.image(found).copy_(torch.where((new != 0).any(0), new, part.image(known)))


def _start(length: int, x: Tensor) -> Tensor:
    """Directions with which every pair begins, ``[length]``."""
    drawn = torch.randn(length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.to(x.device, wide(x))
