"""One worker a process: torch.distributed carries the rounds (gloo, NCCL)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hf_decentral.errors import PeerLost
from hf_decentral.topology.base import Topology
from hf_decentral.transport.background import Background, on_stream
from hf_decentral.transport.combine import HALF, Combiner
from hf_decentral.transport.exchange import Averaged, Kept, Paired, Waiter
from hf_decentral.transport.lost import Notes, cause_of
from hf_decentral.transport.wire import Pending, Send, T

_LANES = 1024  # lanes share the tag with the number of the step; a tag has 31 bits
_number = count()


class Processes:
    """The transport of a run that a launcher started with one process for each worker.

    It talks in process groups of its own, so that its messages cannot be taken for those of the user's
    collectives, and its deadline is its own too.

    Args:
        deadline_seconds: longest wait for an exchange.
    """

    def __init__(self, deadline_seconds: float = 600.0) -> None:
        self.workers = dist.get_world_size()
        self.local: tuple[int, ...] = (dist.get_rank(),)
        self._timeout = timedelta(seconds=deadline_seconds)
        self._group = dist.new_group(timeout=self._timeout)
        # Talks of all workers have a group of their own: one that only some of them enter must not be taken
        # for a round of the others.
        self._talks = dist.new_group(timeout=self._timeout)
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.workers)): self._group}
        self._batched = dist.get_backend(self._group) == "nccl"
        if self._batched:
            # NCCL joins a group at its first call; were that a message between some pairs, it could hang.
            joined = torch.zeros(1, device=torch.device("cuda", torch.cuda.current_device()))
            dist.all_reduce(joined, group=self._group)
        self._notes = Notes(self.local[0], str(next(_number)))
        # NCCL waits on its stream and has a watchdog of its own for the deadline.
        self._waiter = Waiter(self._notes, deadline_seconds, None if self._batched else self._timeout)
        self._combine = Combiner()
        self._background = Background()
        self._buffers: dict[tuple[int, int, torch.dtype], Tensor] = {}
        self.sent_bytes = 0.0

    @property
    def waited_seconds(self) -> float:
        """Seconds that this process stood still for exchanges that had not arrived."""
        return self._waiter.seconds

    def prepare(self, topology: Topology) -> None:
        """Open a process group for every average among three and more workers of a period. Collective."""
        for phase in topology.phases:
            self.prepare(phase)
        if topology.period is None:
            return  # other rounds travel as messages between pairs
        for round in topology.rounds():
            for group in round.groups or ():
                if len(group) > 2 and group not in self._groups:
                    self._groups[group] = dist.new_group(list(group), timeout=self._timeout)

    def start(self, request: Send, step: int, lane: int) -> Pending:
        """See :meth:`Transport.start`."""
        me, round = self.local[0], request.round
        if not round.senders(me) and not round.receivers(me):
            return Kept(request)
        group = next((g for g in round.groups or () if me in g), ())
        if group in self._groups and request.codec is None:  # codes cannot be summed on the way
            return self._average(request, group, step, lane)
        return self._pairs(request, step, lane)

    def _average(self, request: Send, group: tuple[int, ...], step: int, lane: int) -> Pending:
        """One collective for a mean over three and more workers, in float32 where rounding would show."""
        payload = request.payload
        dtype = torch.float32 if payload.dtype in HALF else payload.dtype
        buffer = self._buffer(lane, 0, payload, dtype).copy_(payload)
        work = dist.all_reduce(buffer, group=self._groups[group], async_op=True)
        self.sent_bytes += 2 * (len(group) - 1) / len(group) * buffer.numel() * buffer.element_size()
        others = tuple(j for j in group if j != self.local[0])
        return Averaged(request, buffer, [(others, work)], step, self._waiter)

    def _pairs(self, request: Send, step: int, lane: int) -> Pending:
        """Messages to and from single workers. Every receive is posted before the sends: posted after
        them, the two directions of a link take turns instead of running at once."""
        me, round, payload = self.local[0], request.round, request.payload
        senders, receivers = round.senders(me), round.receivers(me)
        tag = step % (2**31 // _LANES) * _LANES + lane
        inbox = [self._buffer(lane, k, payload, payload.dtype) for k in range(len(senders))]
        calls: list[tuple[Any, Tensor, int]] = [
            (dist.irecv, box, j) for box, j in zip(inbox, senders, strict=True)
        ]
        calls += [(dist.isend, payload, j) for j in receivers]
        self.sent_bytes += len(receivers) * payload.numel() * payload.element_size()
        waits: list[tuple[tuple[int, ...], Any]]
        with self._waiter.naming((*senders, *receivers), step):
            if self._batched:
                ops = [dist.P2POp(call, box, j, self._group) for call, box, j in calls]
                waits = [((*senders, *receivers), work) for work in dist.batch_isend_irecv(ops)]
            else:
                waits = [((j,), call(box, j, group=self._group, tag=tag)) for call, box, j in calls]
        return Paired(request, self._terms(request, inbox), waits, step, self._waiter, self._combine)

    def _terms(self, request: Send, inbox: list[Tensor]) -> list[tuple[Tensor, float]]:
        """The vectors to be summed with their weights, in the order of their senders."""
        received = iter(inbox)
        return [
            ((request.payload if j == self.local[0] else next(received))[0], weight)
            for j, weight in request.round.rows[self.local[0]]
        ]

    def _buffer(self, lane: int, k: int, like: Tensor, dtype: torch.dtype) -> Tensor:
        """The ``k``-th receive buffer of a lane, made when it is first needed."""
        buffer = self._buffers.get((lane, k, dtype))
        if buffer is None or buffer.shape != like.shape or buffer.device != like.device:
            buffer = torch.empty_like(like, dtype=dtype)
            self._buffers[lane, k, dtype] = buffer
        return buffer

    def behind(self, work: Callable[[], T]) -> Callable[[], T]:
        """See :meth:`Transport.behind`: on a thread, or on a stream of its own where NCCL talks."""
        if self._batched:
            return on_stream(work)
        result = self._background.begin(work)

        def wait() -> T:
            began = time.perf_counter()
            try:
                return result()
            finally:
                self._waiter.stood(began)

        return wait

    def average_(self, tensor: Tensor) -> Tensor:
        """See :meth:`Transport.average_`; half precision is summed in float32."""
        total = tensor.to(torch.float32) if tensor.dtype in HALF else tensor
        with self._waiter.naming(self._others(), -1):
            dist.all_reduce(total, group=self._talks)
        return tensor.copy_(total.div_(self.workers))

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """See :meth:`Transport.broadcast_`."""
        with self._waiter.naming(self._others(), -1):
            dist.broadcast(tensor, 0, group=self._talks)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """See :meth:`Transport.gather`."""
        values: list[Any] = [None] * self.workers
        with self._waiter.naming(self._others(), -1):
            dist.all_gather_object(values, value, group=self._talks)
        return values

    def explain(self, error: Exception) -> PeerLost:
        """Who was lost, where a collective that is not of this package failed."""
        return self._notes.explain(self._others(), -1, None, None, cause_of(error))

    def close(self, step: int) -> None:
        """See :meth:`Transport.close`."""
        self._notes.ended(step)

    def _others(self) -> tuple[int, ...]:
        return tuple(j for j in range(self.workers) if j != self.local[0])
