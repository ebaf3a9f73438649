"""Exchanges under way between processes: what is waited for, and what is done when it has arrived."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from hf_decentral.transport.combine import Combiner, decoded_sum
from hf_decentral.transport.lost import Notes, cause_of
from hf_decentral.transport.wire import Send

Waits = Sequence[tuple[tuple[int, ...], Any]]
"""What to wait for: the workers on the other side, and the handle of torch.distributed."""


class Waiter:
    """Waits with a deadline, counts the seconds, and names the worker that did not come."""

    def __init__(self, notes: Notes, deadline_seconds: float, timeout: timedelta | None) -> None:
        self._notes = notes
        self._deadline_seconds = deadline_seconds
        self._timeout = timeout
        self.seconds = 0.0
        self._owner = threading.get_ident()

    def wait(self, waits: Waits, round: int) -> None:
        """Wait for all handles, in order."""
        for peers, work in waits:
            with record_function("hf_decentral: wait"), self.naming(peers, round):
                work.wait() if self._timeout is None else work.wait(self._timeout)

    @contextmanager
    def naming(self, peers: tuple[int, ...], round: int) -> Iterator[None]:
        """Turn an error of the wire into one that says who was lost; -1 is a talk outside the rounds."""
        began = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            waited = time.perf_counter() - began
            cause = cause_of(error)
            raise self._notes.explain(peers, round, waited, self._deadline_seconds, cause) from error
        finally:
            self.stood(began)

    def stood(self, began: float) -> None:
        """Count the time since ``began``, unless this is the thread that waits behind the computing."""
        if threading.get_ident() == self._owner:
            self.seconds += time.perf_counter() - began


class Kept:
    """A round in which this worker talks to nobody."""

    def __init__(self, request: Send) -> None:
        self.round = request.round
        self._request = request

    def settle(self) -> None:
        """Nothing travels."""

    def result(self) -> Tensor:
        """The worker's own payload, ``[1, P]``."""
        payload, into, codec = self._request.payload, self._request.into, self._request.codec
        if codec is not None and into is not None:
            decoded_sum([payload[0]], [1.0], codec.against(payload[0], 0), into[0])
            return into
        return payload if into is None or into is payload else into.copy_(payload)


class _Travelling:
    """What an exchange between processes has in common: it is settled once."""

    def __init__(self, request: Send, waits: Waits, step: int, waiter: Waiter) -> None:
        self.round = request.round
        self._into = request.into
        self._codec = request.codec
        self._waits = waits
        self._step = step
        self._waiter = waiter

    def settle(self) -> None:
        """Wait for what is still on the wire."""
        self._waiter.wait(self._waits, self._step)
        self._waits = ()


class Averaged(_Travelling):
    """A mean over a group by one collective; the sum lies in ``buffer``."""

    def __init__(self, request: Send, buffer: Tensor, waits: Waits, step: int, waiter: Waiter) -> None:
        super().__init__(request, waits, step, waiter)
        self._buffer = buffer
        self._scale = 1.0 / (len(waits[0][0]) + 1)

    def result(self) -> Tensor:
        """The mean, ``[1, P]``."""
        self.settle()
        return torch.mul(self._buffer, self._scale, out=self._buffer if self._into is None else self._into)


class Paired(_Travelling):
    """Messages between pairs; ``terms`` are the received vectors and the own one, with their weights."""

    def __init__(
        self,
        request: Send,
        terms: list[tuple[Tensor, float]],
        waits: Waits,
        step: int,
        waiter: Waiter,
        combine: Combiner,
    ) -> None:
        super().__init__(request, waits, step, waiter)
        self._payload = request.payload
        self._terms = terms
        self._combine = combine

    def result(self) -> Tensor:
        """The weighted sum, ``[1, P]``."""
        self.settle()
        vectors = [vector for vector, _ in self._terms]
        weights = [weight for _, weight in self._terms]
        if self._codec is not None and self._into is not None:
            decoded_sum(vectors, weights, self._codec.against(self._payload[0], 0), self._into[0])
            return self._into
        if self._into is self._payload:
            own = next((v for v in vectors if v.data_ptr() == self._payload.data_ptr()), self._payload[0])
            self._combine(vectors, weights, own)
            return self._payload
        return self._elsewhere(vectors, weights)

    def _elsewhere(self, vectors: list[Tensor], weights: list[float]) -> Tensor:
        """The payload must survive: its part of the sum is taken from a copy."""
        copies = [v.clone() if v.data_ptr() == self._payload.data_ptr() else v for v in vectors]
        out = torch.empty_like(self._payload) if self._into is None else self._into
        self._combine(copies, weights, out[0])
        return out
