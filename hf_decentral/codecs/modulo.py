"""Numbers modulo a bound: few bits suffice for whoever has nearly the same number."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from hf_decentral.codecs.base import Codec, aligned, chunks

BLOCK = 128  # numbers whose digits are packed together


class Modulo(Codec):
    """The number of the step in which ``x`` lies, modulo so many that it fits in the bits (Moniqua: Lu and De
    Sa 2020, arXiv 2002.11787).

    A receiver decodes the difference to its own vector: see :meth:`against`. There is no scale, the error is
    less than a step of ``bound / (2^bits - 1)``, and the greatest digit stands for what is not finite, which
    arrives as NaN. Where the steps begin is drawn from ``tick``, the same for all workers: equal vectors have
    equal messages, and the error is none in the mean over ``tick``.

    Args:
        bits: 8 or 4.
        bound: differences of less than half of it can be told apart.
        workers: rows that are decoded here.

    Attributes:
        widest: the largest difference that each row has decoded, ``[workers]`` in float32; the owner may set
            it to zero. It is at most ``bound / 2``, whatever the true one is.
    """

    def __init__(self, bits: int, bound: float, workers: int = 1) -> None:
        super().__init__(spreads=True)
        self._bits = bits
        self._levels: int = 2**bits - 1
        self._step = bound / self._levels
        self.widest = torch.zeros(workers)

    def to(self, device: torch.device) -> Modulo:
        """Measure on this device; the same object."""
        self.widest = self.widest.to(device)
        return self

    def size(self, numel: int) -> int:
        """See :meth:`Codec.size`."""
        return aligned(-(-numel // BLOCK) * BLOCK * self._bits // 8)

    def contraction(self, numel: int) -> float:
        """None: small numbers have the same error as large ones."""
        return 0.0

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """See :meth:`Codec.encode`."""
        offset = random.Random(tick).random()
        for span in chunks(x):
            digits = self._room("digits", _padded(x[span]), x, torch.uint8)
            room = self._room("x", span.stop - span.start, x, x.dtype).copy_(x[span])
            room.div_(self._step).add_(offset).floor_().remainder_(self._levels)
            digits[: len(room)].copy_(room.nan_to_num_(nan=self._levels))
            digits[len(room) :].zero_()
            words = self._words(code, span)
            if self._bits == 8:
                words.copy_(digits[: len(words)])
                continue
            halves = digits.view(-1, 2, BLOCK // 2)
            packed = words.view(-1, BLOCK // 2)
            torch.bitwise_left_shift(halves[:, 1], 4, out=packed)
            packed.bitwise_or_(halves[:, 0])

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """Zero: only differences can be decoded, see :meth:`against`."""
        return out

    def against(self, own: Tensor, row: int) -> Codec:
        """Decodes ``C(x_j) - C(x_i)``, where ``own`` is the message for ``x_i``."""
        return _Against(self, own, row)

    def add_difference_(self, out: Tensor, code: Tensor, own: Tensor, weight: float, row: int) -> None:
        """Add ``weight`` times the difference of two messages to ``out [P]``, and measure it."""
        widest = self.widest[row]
        for span in chunks(out):
            theirs, mine = (self._digits(word, span, out, name) for word, name in ((code, "a"), (own, "b")))
            room = self._room("theirs", len(theirs), out, out.dtype).copy_(theirs)
            turns = self._room("turns", len(theirs), out, out.dtype).copy_(mine)
            room.sub_(turns)
            torch.div(room, self._levels, out=turns).round_()  # an odd number of levels: never half-way
            room.sub_(turns, alpha=self._levels)
            unknown = self._room("unknown", len(theirs), out, torch.bool)
            torch.eq(torch.maximum(theirs, mine, out=mine), self._levels, out=unknown)
            low, high = torch.aminmax(room.masked_fill_(unknown, 0.0))
            torch.maximum(widest, torch.maximum(-low, high).to(widest.dtype) * self._step, out=widest)
            out[span].add_(room.masked_fill_(unknown, torch.nan), alpha=weight * self._step)

    def _words(self, code: Tensor, span: slice) -> Tensor:
        """The bytes of a chunk, whole blocks of them."""
        begin, end = span.start, span.start + -(-(span.stop - span.start) // BLOCK) * BLOCK
        return code[begin * self._bits // 8 : end * self._bits // 8]

    def _digits(self, code: Tensor, span: slice, like: Tensor, name: str) -> Tensor:
        """The digits of a chunk, in memory that may be written to."""
        words = self._words(code, span)
        digits = self._room(name, len(words) * 8 // self._bits, like, torch.uint8)
        if self._bits == 8:
            digits.copy_(words)
        else:
            halves, packed = digits.view(-1, 2, BLOCK // 2), words.view(-1, BLOCK // 2)
            halves[:, 0].copy_(packed).bitwise_and_(15)
            halves[:, 1].copy_(packed).bitwise_right_shift_(4)
        return digits[: span.stop - span.start]


class _Against(Codec):
    """Reads messages beside one's own."""

    def __init__(self, codec: Modulo, own: Tensor, row: int) -> None:
        super().__init__(spreads=True)
        self._codec = codec
        self._own = own
        self._row = row

    def size(self, numel: int) -> int:
        """See :meth:`Codec.size`."""
        return self._codec.size(numel)

    def contraction(self, numel: int) -> float:
        """See :meth:`Modulo.contraction`."""
        return self._codec.contraction(numel)

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """See :meth:`Codec.encode`."""
        self._codec.encode(x, code, tick)

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """Add ``weight`` times the difference of what was sent to one's own; nothing for one's own."""
        if code.data_ptr() != self._own.data_ptr():
            self._codec.add_difference_(out, code, self._own, weight, self._row)
        return out


def _padded(x: Tensor) -> int:
    return -(-x.numel() // BLOCK) * BLOCK
