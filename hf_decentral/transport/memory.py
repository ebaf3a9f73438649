"""All workers inside this process: the simulator's wire, and the wire of a single worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Topology
from hf_decentral.topology.shards import Shards, sharded
from hf_decentral.topology.traffic import sent
from hf_decentral.transport.combine import HALF, Combiner, decoded_sum
from hf_decentral.transport.wire import Pending, Send, T


class Memory:
    """A transport whose payloads hold one row for each of ``workers`` workers."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self.local = tuple(range(workers))
        self.sent_bytes = 0.0
        self.waited_seconds = 0.0
        self._combine = Combiner()
        self._buffers: dict[tuple[int, torch.Size, torch.dtype], Tensor] = {}
        self._shards: dict[str, dict[int, Shards]] = {}

    def prepare(self, topology: Topology) -> None:
        """Nothing to open; what would travel by shards is counted so."""
        self._shards.update(sharded(topology))

    def start(self, request: Send, step: int, lane: int) -> Pending:
        """See :meth:`Transport.start`. The sums are taken when they are asked for."""
        payload = request.payload
        shards = self._shards.get(request.round.key) if self._shards else None
        copies = mean(sent(request.round, request.codec is not None, shards))
        self.sent_bytes += copies * payload[0].numel() * payload.element_size()
        if request.codec is not None or request.round.idle:
            return _Here(request, None, self._combine)
        kind = lane, payload.shape[1:], payload.dtype
        buffer = self._buffers.get(kind)
        if buffer is None or buffer.device != payload.device:
            # One row more than there are workers: the scratch row of weighted sums.
            buffer = payload.new_empty((self.workers + 1, *payload.shape[1:]))
            self._buffers[kind] = buffer
        return _Here(request, buffer, self._combine)

    def behind(self, work: Callable[[], T]) -> Callable[[], T]:
        """See :meth:`Transport.behind`. Nobody waits here: the work is done when its result is asked for."""
        return cache(work)

    def average_(self, tensor: Tensor) -> Tensor:
        """See :meth:`Transport.average_`."""
        return tensor.copy_(tensor.mean(0, keepdim=True).expand_as(tensor))

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Worker 0 lives here: nothing to do."""
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """One process, one value."""
        return [value]

    def close(self, step: int) -> None:
        """Nobody to tell."""


class _Here:
    """An exchange among the rows of one payload."""

    def __init__(self, request: Send, buffer: Tensor | None, combine: Combiner) -> None:
        self.round: Round = request.round
        self._payload = request.payload
        self._into = request.into
        self._codec = request.codec
        self._buffer = buffer
        self._combine = combine

    def settle(self) -> None:
        """Nothing travels."""

    def result(self) -> Tensor:
        """The weighted sums, ``[W, P]``."""
        if self._codec is not None and self._into is not None:
            for i, (row, out) in enumerate(zip(self.round.rows, self._into, strict=True)):
                codec = self._codec.against(self._payload[i], i)
                decoded_sum([self._payload[j] for j, _ in row], [w for _, w in row], codec, out)
            return self._into
        if self._buffer is None:
            into = self._payload if self._into is None else self._into
            return into if into is self._payload else into.copy_(self._payload)
        sums, scratch = self._buffer[:-1], self._buffer[-1]
        done: dict[int, int] = {}  # a row object shared by a group is summed once
        for i, row in enumerate(self.round.rows):
            if id(row) in done:
                sums[i].copy_(sums[done[id(row)]])
            else:
                self._sum(row, sums[i], scratch)
                done[id(row)] = i
        return sums if self._into is None else self._into.copy_(sums)

    def _sum(self, row: Row, out: Tensor, scratch: Tensor) -> None:
        """The roundings of :class:`Combiner`, but the terms are other workers' parameters: read only."""
        weights = [weight for _, weight in row]
        if out.dtype in HALF:
            self._combine([self._payload[j] for j, _ in row], weights, out)
            return
        uniform = len(set(weights)) == 1
        for k, (j, weight) in enumerate(row):
            term = self._payload[j] if uniform else torch.mul(self._payload[j], weight, out=scratch)
            out.add_(term) if k else out.copy_(term)
        if uniform:
            out.mul_(weights[0])
