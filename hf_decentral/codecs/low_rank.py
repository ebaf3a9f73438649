"""Matrices as products of two thin ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hf_decentral.codecs.base import Codec, Span, aligned, finite_


class LowRank(Codec):
    """The projection of each matrix on the few directions in which it is largest.

    One power step from a random start, as in PowerSGD and PowerGossip (Vogels et al. 2019, arXiv 1905.13727;
    2020, arXiv 2008.01425, where both ends of an edge take the step together; here the sender takes it).
    Parameters with one axis, and matrices that two thin ones would not make smaller, are sent as they are.

    Args:
        rank: columns of the thin matrices.
        layout: where the parameters lie in the bucket.
    """

    def __init__(self, rank: int, layout: Sequence[Span] = ()) -> None:
        super().__init__()
        self._rank = rank
        self._layout = tuple(layout)

    def fit(self, layout: Sequence[Span]) -> LowRank:
        """See :meth:`Codec.fit`."""
        return LowRank(self._rank, layout)

    def size(self, numel: int) -> int:
        """Four bytes for each number of the thin matrices."""
        return aligned(4 * sum(self._length(rows, columns) for _, rows, columns in self._matrices(numel)))

    def contraction(self, numel: int) -> float:
        """A projection loses nothing more than the matrix; a random direction holds its share in the mean."""
        shares = [
            self._rank / min(rows, columns)
            for _, rows, columns in self._matrices(numel)
            if self._thin(rows, columns)
        ]
        return min(shares, default=1.0)

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """See :meth:`Codec.encode`."""
        room = finite_(self._room("x", x.numel(), x, torch.float32).copy_(x))
        seed = torch.Generator().manual_seed(tick)
        for matrix, left, right in self._parts(room, code):
            if right is None:
                left.copy_(matrix)
                continue
            start = torch.randn(matrix.shape[1], self._rank, generator=seed).to(x.device, non_blocking=True)
            # Cubes leave the range of float32 where the matrix does not; powers of two divide exactly.
            scale = torch.exp2(torch.log2(matrix.abs().amax().clamp_(min=1e-30)).ceil_())
            power = matrix.div_(scale) @ (matrix.T @ (matrix @ start))
            left.copy_(torch.linalg.qr(power).Q)
            torch.matmul(matrix.T, left, out=right).mul_(scale)

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """See :meth:`Codec.add_`."""
        for matrix, left, right in self._parts(out, code):
            if right is None:
                matrix.add_(left, alpha=weight)
            else:
                matrix.addmm_(left.to(out.dtype), right.to(out.dtype).T, alpha=weight)
        return out

    def _matrices(self, numel: int) -> list[tuple[int, int, int]]:
        whole: tuple[Span, ...] = ((0, (numel,)),)
        return matrices(self._layout or whole)

    def _thin(self, rows: int, columns: int) -> bool:
        return shorter(self._rank, rows, columns)

    def _length(self, rows: int, columns: int) -> int:
        return self._rank * (rows + columns) if self._thin(rows, columns) else rows * columns

    def _parts(self, x: Tensor, code: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Each matrix with its two thin ones in the message; or with its whole self, and None."""
        words, at = code.view(torch.float32), 0
        for offset, rows, columns in self._matrices(x.numel()):
            matrix = x[offset : offset + rows * columns].view(rows, columns)
            length = self._length(rows, columns)
            part = words[at : at + length]
            at += length
            if self._thin(rows, columns):
                cut = self._rank * rows
                yield matrix, part[:cut].view(rows, self._rank), part[cut:].view(columns, self._rank)
            else:
                yield matrix, part.view(rows, columns), None


def matrices(layout: Sequence[Span]) -> list[tuple[int, int, int]]:
    """Offset, rows and columns of everything in a bucket; a vector is one row."""
    return [
        (offset, shape[0], math.prod(shape[1:])) if len(shape) > 1 else (offset, 1, math.prod(shape))
        for offset, shape in layout
        if math.prod(shape)
    ]


def shorter(rank: int, rows: int, columns: int) -> bool:
    """Whether two thin matrices have fewer numbers than the one that they stand for."""
    return rank * (rows + columns) < rows * columns
