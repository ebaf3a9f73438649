"""Half precision on the wire, single precision in the weights."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_decentral.codecs.base import Codec, aligned, chunks


class Half(Codec):
    """Two bytes a number.

    Args:
        dtype: ``torch.bfloat16`` or ``torch.float16``. What float16 cannot hold becomes its largest number.
        spreads: see :class:`Codec`.
    """

    def __init__(self, dtype: torch.dtype, spreads: bool = False) -> None:
        super().__init__(spreads)
        self._dtype = dtype
        self._largest = torch.finfo(dtype).max

    def size(self, numel: int) -> int:
        """See :meth:`Codec.size`."""
        return aligned(2 * numel)

    def contraction(self, numel: int) -> float:
        """Rounding to nearest, relative to each number (as long as it is in the range of the dtype)."""
        return 1.0 - (torch.finfo(self._dtype).eps / 2) ** 2

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """See :meth:`Codec.encode`."""
        half = code[: 2 * x.numel()].view(self._dtype)
        for span in chunks(x):
            room = self._room("x", span.stop - span.start, x, x.dtype).copy_(x[span])
            half[span].copy_(self._cleaned(room).clamp_(-self._largest, self._largest))

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """See :meth:`Codec.add_`."""
        half = code[: 2 * out.numel()].view(self._dtype)
        for span in chunks(out):
            room = self._room("out", span.stop - span.start, out, out.dtype)
            out[span].add_(room.copy_(half[span]), alpha=weight)
        return out
