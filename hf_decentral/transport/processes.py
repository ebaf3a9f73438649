"""One worker a process: torch.distributed carries the rounds (gloo, NCCL)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hf_decentral.errors import PeerLost
from hf_decentral.topology.base import Topology
from hf_decentral.topology.shards import Shards, sharded
from hf_decentral.transport.background import Background, on_stream
from hf_decentral.transport.combine import HALF, Combiner
from hf_decentral.transport.exchange import Averaged, Kept, Paired, Waiter, Waits
from hf_decentral.transport.lost import Notes, cause_of
from hf_decentral.transport.sharded import Mail, Sharded, shard_length
from hf_decentral.transport.wire import Pending, Send, T

_LANES, _PHASES = 256, 4  # lanes and phases share the tag with the number of the step; a tag has 31 bits
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
        self._shards: dict[str, Shards] = {}
        # A group may have a backend for each kind of device: "cpu:gloo,cuda:nccl".
        self._batched = torch.cuda.is_available() and "nccl" in dist.get_backend_config(self._group)
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
        self._counting = Lock()
        self.sent_bytes = 0.0

    @property
    def waited_seconds(self) -> float:
        """Seconds that this process stood still for exchanges that had not arrived."""
        return self._waiter.seconds

    def prepare(self, topology: Topology) -> None:
        """Open a process group for every average among three and more workers of a period that does not
        travel by shards. Collective."""
        for phase in topology.phases:
            self.prepare(phase)
        if topology.period is None:
            return  # other rounds travel as messages between pairs
        found = sharded(topology)
        self._shards.update({key: who[self.local[0]] for key, who in found.items() if self.local[0] in who})
        for round in topology.rounds():
            for group in round.groups or ():
                if len(group) > 2 and group not in self._groups and group[0] not in found.get(round.key, ()):
                    self._groups[group] = dist.new_group(list(group), timeout=self._timeout)

    def start(self, request: Send, step: int, lane: int) -> Pending:
        """See :meth:`Transport.start`."""
        me, round = self.local[0], request.round
        if not round.senders(me) and not round.receivers(me):
            return Kept(request)
        if self._shards and round.key in self._shards and request.codec is None:
            return self._by_shards(request, self._shards[round.key], step, lane)
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
        self._count(2 * (len(group) - 1) / len(group) * buffer.numel() * buffer.element_size())
        others = tuple(j for j in group if j != self.local[0])
        return Averaged(request, buffer, [(others, work)], step, self._waiter)

    def _pairs(self, request: Send, step: int, lane: int) -> Pending:
        """Messages to and from single workers. Every receive is posted before the sends: posted after
        them, the two directions of a link take turns instead of running at once."""
        me, round, payload = self.local[0], request.round, request.payload
        senders, receivers = round.senders(me), round.receivers(me)
        inbox = [self._buffer(lane, k, payload, payload.dtype) for k in range(len(senders))]
        self._count(len(receivers) * payload.numel() * payload.element_size())
        outbox = [(j, payload) for j in receivers]
        waits = self._post(step, lane, 0, list(zip(senders, inbox, strict=True)), outbox)
        return Paired(request, self._terms(request, inbox), waits, step, self._waiter, self._combine)

    def _by_shards(self, request: Send, shards: Shards, step: int, lane: int) -> Pending:
        """An average over two hosts of which this worker sends the other host only its shard."""
        payload, each = request.payload, len(shards.inside)
        size, place = shard_length(payload.numel(), each), shards.inside.index(self.local[0])
        mine = min(size, max(0, payload.numel() - place * size))
        sent = payload.numel() - mine + (each - 1 + bool(shards.across)) * mine
        self._count(sent * payload.element_size())
        space = self._buffer(lane, -1, payload, payload.dtype, (each + 1) * size)[0]
        swap = partial(self._swap, step, lane)
        return Sharded(request, shards, place, space, swap, self._combine).begin(self.behind)

    def _count(self, sent: float) -> None:
        with self._counting:  # two threads begin exchanges
            self.sent_bytes += sent

    def _swap(self, step: int, lane: int, phase: int, inbox: Mail, outbox: Mail) -> None:
        self._waiter.wait(self._post(step, lane, phase, inbox, outbox), step)

    def _post(self, step: int, lane: int, phase: int, inbox: Mail, outbox: Mail) -> Waits:
        """Receives, then sends; vectors of no element, which both sides know to be such, do not travel."""
        tag = step % (2**31 // (_LANES * _PHASES)) * (_LANES * _PHASES) + lane * _PHASES + phase
        calls: list[tuple[Any, Tensor, int]] = [(dist.irecv, box, j) for j, box in inbox if box.numel()]
        calls += [(dist.isend, box, j) for j, box in outbox if box.numel()]
        peers = tuple(dict.fromkeys(j for _, _, j in calls))
        if not calls:
            return ()
        with self._waiter.naming(peers, step):
            if self._batched:
                ops = [dist.P2POp(call, box, j, self._group) for call, box, j in calls]
                return [(peers, work) for work in dist.batch_isend_irecv(ops)]
            return [((j,), call(box, j, group=self._group, tag=tag)) for call, box, j in calls]

    def _terms(self, request: Send, inbox: list[Tensor]) -> list[tuple[Tensor, float]]:
        """The vectors to be summed with their weights, in the order of their senders."""
        received = iter(inbox)
        return [
            ((request.payload if j == self.local[0] else next(received))[0], weight)
            for j, weight in request.round.rows[self.local[0]]
        ]

    def _buffer(
        self, lane: int, k: int, like: Tensor, dtype: torch.dtype, length: int | None = None
    ) -> Tensor:
        """The ``k``-th receive buffer of a lane, made when it is first needed."""
        shape = like.shape if length is None else torch.Size((1, length))
        buffer = self._buffers.get((lane, k, dtype))
        if buffer is None or buffer.shape != shape or buffer.device != like.device:
            buffer = like.new_empty(shape, dtype=dtype)
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
