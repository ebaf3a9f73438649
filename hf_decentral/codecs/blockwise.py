"""Whole numbers of eight or four bits, with one scale for each block."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_decentral.codecs.base import Codec, aligned, chunks

BLOCK = 128  # numbers that share a scale: a quarter of a bit each
_SMALLEST = 1e-37  # a block of zeros must not divide by zero


class Blockwise(Codec):
    """Rounds to the nearest of ``2^bits - 1`` even steps between plus and minus the block's largest modulus.

    Blocks as in Dettmers et al. 2022 (arXiv 2110.02861), with even steps.

    Args:
        bits: 8 or 4.
        spreads: see :class:`Codec`.
    """

    def __init__(self, bits: int, spreads: bool = False) -> None:
        super().__init__(spreads)
        self._bits = bits
        self._top: int = 2 ** (bits - 1) - 1

    def size(self, numel: int) -> int:
        """See :meth:`Codec.size`."""
        blocks = -(-numel // BLOCK)
        return aligned(blocks * (4 + BLOCK * self._bits // 8))

    def contraction(self, numel: int) -> float:
        """Each number of a block is off by at most half a step, and the largest by nothing."""
        return 1.0 - max(0, min(numel, BLOCK) - 1) / (4.0 * self._top**2)

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """See :meth:`Codec.encode`."""
        for span in chunks(x):
            scales, words = self._parts(code, x.numel(), span)
            blocks = self._filled(x[span])
            size = self._room("modulus", blocks.numel(), x, torch.float32).view_as(blocks)
            torch.amax(torch.abs(blocks, out=size), 1, out=scales)
            scales.div_(self._top).clamp_(min=_SMALLEST)
            blocks.div_(scales.unsqueeze(1)).round_()
            if self._bits == 8:
                words.view(torch.int8).copy_(blocks)
                continue
            digits = self._room("digits", blocks.numel(), x, torch.uint8).view_as(blocks)
            digits.copy_(blocks.add_(8))
            torch.bitwise_left_shift(digits[:, BLOCK // 2 :], 4, out=words)
            words.bitwise_or_(digits[:, : BLOCK // 2])

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """See :meth:`Codec.add_`."""
        for span in chunks(out):
            scales, words = self._parts(code, out.numel(), span)
            blocks = self._room("out", len(scales) * BLOCK, out, out.dtype).view(-1, BLOCK)
            if self._bits == 8:
                blocks.copy_(words.view(torch.int8))
            else:
                digits = self._room("digits", words.numel(), out, torch.uint8).view_as(words)
                blocks[:, : BLOCK // 2].copy_(torch.bitwise_and(words, 15, out=digits))
                blocks[:, BLOCK // 2 :].copy_(torch.bitwise_right_shift(words, 4, out=digits))
                blocks.sub_(8)
            blocks.mul_(scales.to(out.dtype).unsqueeze(1))
            out[span].add_(blocks.view(-1)[: span.stop - span.start], alpha=weight)
        return out

    def _parts(self, code: Tensor, numel: int, span: slice) -> tuple[Tensor, Tensor]:
        """The scales ``[blocks]`` and the digits ``[blocks, bytes]`` of a chunk; all scales come first."""
        blocks = -(-numel // BLOCK)
        first, last = span.start // BLOCK, -(-span.stop // BLOCK)
        wide = BLOCK * self._bits // 8
        words = code[4 * blocks : (4 + wide) * blocks].view(blocks, wide)
        return code[: 4 * blocks].view(torch.float32)[first:last], words[first:last]

    def _filled(self, x: Tensor) -> Tensor:
        """A copy in whole blocks, ``[blocks, BLOCK]`` in float32."""
        blocks = -(-x.numel() // BLOCK)
        room = self._room("x", blocks * BLOCK, x, torch.float32)
        room[: x.numel()].copy_(x)
        room[x.numel() :].zero_()
        return self._cleaned(room).view(blocks, BLOCK)
