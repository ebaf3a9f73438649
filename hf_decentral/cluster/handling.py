"""What a worker does with what arrives, and with what it sends in codes: time of its own, not of the wire."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from hf_decentral import averaging
from hf_decentral.averaging import Joined, State
from hf_decentral.cluster.measured import Coding
from hf_decentral.rounds import Round
from hf_decentral.transport.combine import Combiner, decoded_sum
from hf_decentral.transport.wire import Send

METHODS = ("bf16", "fp16", "int8", "int4")
"""Averaging methods whose codes are timed: those that need no search and cost every step the same."""

BUCKET_BYTES = 4e6
"""What is exchanged as one, by default."""

_BUCKETS = 8  # that are taken in turn, so that a bucket is not found in the cache as it would not be in a run
_PAIR = Round(((((0, 0.5), (1, 0.5))), ((0, 0.5), (1, 0.5))))


@dataclass(frozen=True)
class Handling:
    """Seconds over all parameters.

    Attributes:
        combine_seconds: the weighted sum with one copy that arrived.
        codings: of averaging methods that encode, by name.
    """

    combine_seconds: float = 0.0
    codings: Mapping[str, Coding] = field(default_factory=dict)


def handling(
    parameter_bytes: int,
    device: torch.device,
    methods: Sequence[str] = METHODS,
    seconds: float = 2.0,
    together: Callable[[], object] = lambda: None,
) -> Handling:
    """Time what one of a pair does with its parameters, bucket by bucket, without sending any.

    Args:
        parameter_bytes: bytes of all parameters, in float32.
        device: where they live.
        methods: averaging methods that run behind the computing.
        seconds: about how long it may take.
        together: waits for all workers, who then share processors and memory as in a run. Collective.
    """
    numbers = max(1, int(min(parameter_bytes, BUCKET_BYTES) // 4))
    buckets = parameter_bytes / (4 * numbers)
    rows = torch.randn(min(_BUCKETS, max(1, round(buckets))), 1, numbers, device=device)
    share = seconds / (1 + len(methods))
    together()
    with torch.no_grad():
        combine = _timed([_Combine(row) for row in rows], share, device)[0]
        codings = {}
        for name in methods:
            together()
            coded = [_Coded(name, row) for row in rows]
            before, after = _timed(coded, share, device)
            codings[name] = Coding(coded[0].payload, before * buckets, after * buckets)
    return Handling(combine * buckets, codings)


class _Combine:
    """One bucket, and the copy of a neighbour."""

    def __init__(self, x: Tensor) -> None:
        self._x, self._arrived, self._combine = x, x.clone(), Combiner()

    def __call__(self, now: Callable[[], float]) -> tuple[float, ...]:
        began = now()
        self._combine([self._x[0], self._arrived[0]], [0.5, 0.5], self._x[0])
        return (now() - began,)


class _Coded:
    """One bucket under an averaging method, whose neighbour sends the same.

    Attributes:
        payload: bytes of a message as a share of the bucket's.
    """

    def __init__(self, name: str, x: Tensor) -> None:
        self._x, self._state, self._method = x, State(), averaging.build(name)
        if self._method.prepare is not None:
            self._method.prepare(x, [_PAIR], [(0, (x.shape[1],))], self._state)
        self.payload = 1.0

    def __call__(self, now: Callable[[], float]) -> tuple[float, ...]:
        began = now()
        exchange = self._method(self._x, _PAIR, self._state)
        request = next(exchange)
        encoded = now()
        while isinstance(request, Send):
            self.payload = request.payload[0].nbytes / self._x[0].nbytes
            request = exchange.send(_answer(request))
        if isinstance(request, Joined):
            for _ in exchange:
                continue
        return encoded - began, now() - encoded


def _answer(request: Send) -> Tensor:
    """The sum with a message that has arrived."""
    if request.codec is None or request.into is None:
        return request.payload
    code = request.payload[0]
    decoded_sum([code, code], [0.5, 0.5], request.codec, request.into[0])
    return request.into


def _timed(
    works: Sequence[Callable[[Callable[[], float]], tuple[float, ...]]], seconds: float, device: torch.device
) -> list[float]:
    """The median of each part of some works, which are done in turn; the first turn does not count."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    for work in works:
        work(now)
    found: list[tuple[float, ...]] = []
    until = now() + seconds
    while len(found) < len(works) or (now() < until and len(found) < 10 * len(works)):
        found.append(works[len(found) % len(works)](now))
    return [median(parts) for parts in zip(*found, strict=True)]
