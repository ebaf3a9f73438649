"""What a codec is: fewer bytes for a vector, of a number that is known beforehand."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

Span = tuple[int, tuple[int, ...]]
"""Where a parameter lies in a bucket, and its shape."""

ALIGN_BYTES = 16  # every message is a multiple of it, so that rows of messages may be viewed in any dtype
CHUNK = 1 << 17  # numbers; half a megabyte of float32 stays in a processor's second-level cache


class Codec(ABC):
    """Encodes vectors lossily.

    Args:
        spreads: what becomes of a number that is not finite. False: it is encoded as zero, since it would
            spoil its neighbours; that suits differences. True: it arrives as NaN (maybe with some around it),
            as it would in a plain average; that suits parameters, which must not be taken for zero.

    What is lost is the business of the averaging method: it keeps the difference and sends it later (error
    feedback), which needs a codec that loses less than everything, see :meth:`contraction`.
    """

    def __init__(self, spreads: bool = False) -> None:
        self._spreads = spreads
        self._scratch: dict[tuple[int, int, str, torch.device, torch.dtype], Tensor] = {}

    def fit(self, layout: Sequence[Span]) -> Codec:
        """The codec for a bucket in which parameters lie like this; itself, if it does not matter."""
        return self

    @abstractmethod
    def size(self, numel: int) -> int:
        """Bytes of the message for ``numel`` numbers."""

    @abstractmethod
    def contraction(self, numel: int) -> float:
        """``delta`` in ``||x - C(x)||^2 <= (1 - delta) ||x||^2`` for vectors of ``numel`` numbers, in
        the mean over ``tick`` where the codec is random (Karimireddy et al. 2019, arXiv 1901.09847).
        """

    @abstractmethod
    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        """Write the message for ``x``.

        Args:
            x: ``[P]``, float32 or float64.
            code: ``[size(P)]`` bytes (uint8), overwritten.
            tick: how many messages went before this one; random codecs draw from it.
        """

    @abstractmethod
    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        """Add ``weight * C(x)`` to ``out`` in place.

        Args:
            out: ``[P]``, float32 or float64.
            code: ``[size(P)]`` bytes, as :meth:`encode` wrote them.
            weight: a factor.
        """

    def against(self, own: Tensor, row: int) -> Codec:
        """The codec with which a worker decodes what it hears; itself, if that is the same for all.

        Args:
            own: the message ``[size(P)]`` that this worker sent in the same round.
            row: the number of the worker among those of this process.
        """
        return self

    def _cleaned(self, x: Tensor) -> Tensor:
        """What may be encoded, in place."""
        return x if self._spreads else finite_(x)

    def _room(self, name: str, numel: int, like: Tensor, dtype: torch.dtype) -> Tensor:
        """Memory that is kept from call to call, for each thread and stream: one may encode while another
        adds."""
        stream = torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
        key = (threading.get_ident(), stream, name, like.device, dtype)
        room = self._scratch.get(key)
        if room is None or room.numel() < numel:
            room = self._scratch[key] = torch.empty(numel, dtype=dtype, device=like.device)
        return room[:numel]


def aligned(size: int) -> int:
    """The next multiple of :data:`ALIGN_BYTES`."""
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES


def chunks(x: Tensor) -> Iterator[slice]:
    """Spans of a vector that fit a processor's cache; an accelerator takes the vector as a whole."""
    step = CHUNK if x.device.type == "cpu" else max(1, x.numel())
    for begin in range(0, x.numel(), step):
        yield slice(begin, min(begin + step, x.numel()))


def finite_(x: Tensor) -> Tensor:
    """Zero in the place of what is not finite."""
    return x.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
