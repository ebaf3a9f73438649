"""Messages that only measure: who exchanges with whom, and how long it takes, on all workers at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from hf_decentral.topology.base import hosts_members

DEADLINE_SECONDS = 120.0
"""Longest wait for one message."""

Times = NDArray[np.float64]
"""Seconds of each worker in each repeat, ``[W, R]``; 0: it took no part."""


@dataclass(frozen=True)
class Part:
    """What one worker does in an exchange.

    Attributes:
        to: whom it sends to; None: nobody.
        hears: from whom it receives; None: from nobody.
    """

    to: int | None
    hears: int | None


Pattern = dict[int, Part]
"""The workers that take part, and how."""


def exchanges(members: Sequence[int]) -> list[Pattern]:
    """Patterns in which every member sends and hears at once: in pairs, or around a ring for odd numbers.

    There are two wherever there are more than two members, so that a slow one can be told from those who had
    to do with it.
    """
    count = len(members)
    if count < 2:
        return []
    if count % 2:
        return [_ring(members, 1), _ring(members, count - 1)]
    pairs = [_pairs(members)]
    return pairs if count == 2 else [*pairs, _pairs([*members[1:], members[0]])]


def one_way(members: Sequence[int]) -> Pattern:
    """The pairs of :func:`exchanges`, of which only the first sends; an odd one out waits."""
    found: Pattern = {}
    for a, b in zip(members[::2], members[1::2], strict=False):
        found[a], found[b] = Part(b, None), Part(None, a)
    return found


def crowd(hosts: Sequence[int]) -> list[Pattern]:
    """Two exchanges that the first workers of all hosts make at once, with the next and the one before around
    a ring; none where there are fewer than three hosts."""
    members = [group[0] for group in hosts_members(len(hosts), hosts)]
    return [] if len(members) < 3 else [_ring(members, 1), _ring(members, len(members) - 1)]


def between(hosts: Sequence[int]) -> list[Pattern]:
    """Exchanges of the first workers of all hosts."""
    return exchanges([group[0] for group in hosts_members(len(hosts), hosts)])


def inside(hosts: Sequence[int]) -> list[Pattern]:
    """Exchanges between neighbours inside all hosts at once."""
    each = [exchanges(group) for group in hosts_members(len(hosts), hosts)]
    return [
        {worker: part for patterns in each if k < len(patterns) for worker, part in patterns[k].items()}
        for k in range(max((len(patterns) for patterns in each), default=0))
    ]


def _pairs(members: Sequence[int]) -> Pattern:
    found: Pattern = {}
    for a, b in zip(members[::2], members[1::2], strict=True):
        found[a], found[b] = Part(b, b), Part(a, a)
    return found


def _ring(members: Sequence[int], shift: int) -> Pattern:
    count = len(members)
    return {me: Part(members[(k + shift) % count], members[k - shift]) for k, me in enumerate(members)}


class Wire:
    """The default group of torch.distributed, with memory for messages. Everything here is collective.

    Args:
        largest_bytes: of a message.
    """

    def __init__(self, largest_bytes: int) -> None:
        self.workers, self.me = dist.get_world_size(), dist.get_rank()
        # A group may have a backend for each kind of device: "cpu:gloo,cuda:nccl".
        self.nccl = torch.cuda.is_available() and "nccl" in dist.get_backend_config()
        self.device = torch.device("cuda", torch.cuda.current_device()) if self.nccl else torch.device("cpu")
        self._outbox = torch.zeros(largest_bytes, dtype=torch.uint8, device=self.device)
        self._inboxes = [torch.empty_like(self._outbox)]
        self._began = time.perf_counter()
        self.elapsed = 0.0

    def times(self, act: Callable[[], bool], repeats: int, together: bool = False) -> Times:
        """Do something some times on all workers; :attr:`elapsed` is then worker 0's clock on every worker.

        Args:
            act: does it, and says whether its time counts.
            repeats: how many times.
            together: all workers begin each of them at once.
        """
        own = torch.zeros(repeats + 1, dtype=torch.float64)
        for k in range(repeats):
            if together:
                self.together()
            began = time.perf_counter()
            counts = act()
            self._finish()
            own[k] = time.perf_counter() - began if counts else 0.0
        own[repeats] = time.perf_counter() - self._began
        own = own.to(self.device)
        every = [torch.empty_like(own) for _ in range(self.workers)]
        dist.all_gather(every, own)
        found: Times = torch.stack(every).cpu().numpy()
        self.elapsed = float(found[0, -1])
        return found[:, :-1]

    def exchange(self, size: int, *patterns: Pattern) -> bool:
        """Exchanges that are made at once; every receive is posted before the sends, or the directions would
        take turns.

        Returns:
            Whether this worker heard anything: who only sends does not know when it arrived.
        """
        parts = [pattern[self.me] for pattern in patterns if self.me in pattern]
        while len(self._inboxes) < len(parts):
            self._inboxes.append(torch.empty_like(self._outbox))
        calls: list[tuple[Callable[..., dist.Work | None], Tensor, int]] = []
        for part, inbox in zip(parts, self._inboxes, strict=False):
            if part.hears is not None:
                calls.append((dist.irecv, inbox[:size], part.hears))
        calls += [(dist.isend, self._outbox[:size], part.to) for part in parts if part.to is not None]
        if not calls:
            return False
        if self.nccl:
            for work in dist.batch_isend_irecv([dist.P2POp(*call) for call in calls]):
                work.wait()
        else:
            begun = [call(box, peer) for call, box, peer in calls]
            for each in begun:
                if each is not None:
                    each.wait(timedelta(seconds=DEADLINE_SECONDS))
        return any(part.hears is not None for part in parts)

    def all_reduce(self, size: int) -> bool:
        """The sum of so many bytes of float32 over all workers."""
        dist.all_reduce(self._outbox[: size - size % 4].view(torch.float32))
        return True

    def together(self) -> None:
        """Wait for all."""
        dist.all_reduce(torch.zeros(1, device=self.device))
        self._finish()

    def _finish(self) -> None:
        if self.nccl:
            torch.cuda.synchronize(self.device)
