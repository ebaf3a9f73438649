"""Where the parameters of a worker and of those whom it hears are summed.

The terms come in the order of their senders, so that a run inside one process and a run on several agree to
the last bit wherever workers talk in pairs (a mean over three and more is one collective, which sums in an
order of its own). Products and sums are rounded one after the other: no fused multiply-add, whose use by a
kernel may depend on the position of an element.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from hf_decentral.codecs import Codec

HALF = (torch.float16, torch.bfloat16)
_CHUNK = 1 << 18  # elements; two float32 chunks of this size stay in a processor's second-level cache


class Combiner:
    """Weighted sums of vectors of equal length, without an allocation after the first call."""

    def __init__(self) -> None:
        # For each thread: one may sum shards while another sums pairs.
        self._scratch: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}

    def __call__(self, terms: Sequence[Tensor], weights: Sequence[float], out: Tensor) -> Tensor:
        """Write ``sum_k weights[k] * terms[k]`` to ``out``.

        Args:
            terms: vectors ``[P]`` in ascending order of their senders. Those that are not ``out`` serve as
                scratch space and hold nothing of use afterwards.
            weights: one for each term.
            out: ``[P]``, either one of the terms or other memory.
        """
        if out.dtype in HALF:
            return self._in_float32(terms, weights, out)
        if out.device.type != "cpu" or out.numel() <= _CHUNK:
            return _weighted(terms, weights, out)
        # The product finds in the cache what the sum has left there: a quarter less time than in two passes
        # (a lerp takes a third less, but rounds differently on the two sides of a pair).
        whole = next((k for k, term in enumerate(terms) if term is out), None)
        for spans in zip(*(torch.split(each, _CHUNK) for each in (*terms, out)), strict=True):
            _weighted(spans[:-1], weights, spans[-1] if whole is None else spans[whole])
        return out

    def _in_float32(self, terms: Sequence[Tensor], weights: Sequence[float], out: Tensor) -> Tensor:
        # In bfloat16 x + x + x is rounded, so three equal workers would drift away from their own value.
        key = (threading.get_ident(), out.device)
        if key not in self._scratch:
            pair = torch.empty(2, _CHUNK, dtype=torch.float32, device=out.device)
            self._scratch[key] = (pair[0], pair[1])
        total, term32 = self._scratch[key]
        for begin in range(0, out.numel(), _CHUNK):
            span = slice(begin, min(begin + _CHUNK, out.numel()))
            size = span.stop - span.start
            for k, (term, weight) in enumerate(zip(terms, weights, strict=True)):
                target = term32 if k else total
                target[:size].copy_(term[span]).mul_(weight)
                if k:
                    total[:size].add_(term32[:size])
            out[span].copy_(total[:size])
        return out


def _weighted(terms: Sequence[Tensor], weights: Sequence[float], out: Tensor) -> Tensor:
    if len(set(weights)) == 1:
        return _sum_in_order(terms, out).mul_(weights[0])
    for term, weight in zip(terms, weights, strict=True):
        term.mul_(weight)
    return _sum_in_order(terms, out)


def decoded_sum(codes: Sequence[Tensor], weights: Sequence[float], codec: Codec, out: Tensor) -> Tensor:
    """Write ``sum_k weights[k] * decode(codes[k])`` to ``out``, ``[P]``."""
    out.zero_()
    for code, weight in zip(codes, weights, strict=True):
        codec.add_(out, code, weight)
    return out


def _sum_in_order(terms: Sequence[Tensor], out: Tensor) -> Tensor:
    """``((t0 + t1) + t2) + ...``; a sum of two does not depend on which of them holds the result."""
    own = next((k for k, term in enumerate(terms) if term is out), None)
    if own is None:
        out.copy_(terms[0])
        own = 0
    elif own:
        for term in terms[1:own]:
            terms[0].add_(term)
        out.add_(terms[0])
    for term in terms[own + 1 :]:
        out.add_(term)
    return out
