"""Few of the numbers: the largest, or some that the number of the message decides."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from hf_decentral.codecs.base import Codec, aligned, finite_


class TopK(Codec):
    """The numbers of largest modulus, with their places (Aji and Heafield 2017, arXiv 1704.05021).

    Args:
        fraction: share of the numbers that is sent, at least one; in (0, 1].
    """

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self._fraction = fraction

    def size(self, numel: int) -> int:
        """Four bytes for a place and four for a number."""
        return aligned(8 * kept(self._fraction, numel))

    def contraction(self, numel: int) -> float:
        """The largest hold at least their share of the square."""
        return kept(self._fraction, numel) / max(1, numel)

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """See :meth:`Codec.encode`."""
        places, values = self._parts(code, x.numel())
        modulus = finite_(torch.abs(x, out=self._room("modulus", x.numel(), x, x.dtype)))
        found = torch.topk(modulus, len(places), sorted=False).indices
        places.copy_(found)
        values.copy_(finite_(x[found]))

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """See :meth:`Codec.add_`."""
        places, values = self._parts(code, out.numel())
        return out.index_add_(0, places, values.to(out.dtype), alpha=weight)

    def _parts(self, code: Tensor, numel: int) -> tuple[Tensor, Tensor]:
        k = kept(self._fraction, numel)
        return code[: 4 * k].view(torch.int32), code[4 * k : 8 * k].view(torch.float32)


class RandomK(Codec):
    """A run of numbers that begins at a random place and goes on at the beginning.

    Every number is in it with probability ``fraction``, as in random-k (Stich et al. 2018, arXiv 1809.07599);
    a run needs no list of places and is read straight out of memory. The message begins with the place.

    Args:
        fraction: share of the numbers that is sent, at least one; in (0, 1].
    """

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self._fraction = fraction

    def size(self, numel: int) -> int:
        """Eight bytes for the place and four for a number."""
        return aligned(8 + 4 * kept(self._fraction, numel)) if numel else 0

    def contraction(self, numel: int) -> float:
        """In the mean over ``tick``."""
        return kept(self._fraction, numel) / max(1, numel)

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """See :meth:`Codec.encode`."""
        if not x.numel():
            return
        place = random.Random(tick).randrange(x.numel())
        code[:8].view(torch.int64).fill_(place)
        first, rest = self._runs(x, place)
        values = self._values(code, x.numel())
        values[: len(first)].copy_(first)
        values[len(first) :].copy_(rest)
        finite_(values)

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """See :meth:`Codec.add_`."""
        if not out.numel():
            return out
        values = self._values(code, out.numel())
        place = code[:8].view(torch.int64)
        if out.is_cuda:  # the host shall not wait for the place
            run = torch.arange(len(values), device=out.device).add_(place).remainder_(out.numel())
            return out.index_add_(0, run, values.to(out.dtype), alpha=weight)
        first, rest = self._runs(out, int(place))
        first.add_(values[: len(first)].to(out.dtype), alpha=weight)
        rest.add_(values[len(first) :].to(out.dtype), alpha=weight)
        return out

    def _runs(self, x: Tensor, place: int) -> tuple[Tensor, Tensor]:
        end = place + kept(self._fraction, x.numel())
        return x[place:end], x[: max(0, end - x.numel())]

    def _values(self, code: Tensor, numel: int) -> Tensor:
        return code[8 : 8 + 4 * kept(self._fraction, numel)].view(torch.float32)


def kept(fraction: float, numel: int) -> int:
    """How many of so many numbers travel."""
    return min(numel, max(1, math.ceil(fraction * numel)))
