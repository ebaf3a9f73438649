"""Asynchronous training in pairs (AD-PSGD, Lian et al. 2018, arXiv 1710.06952) in virtual time.

Every worker goes round by itself: it reads its parameters, computes a gradient at what it read, averages with
one neighbour drawn at random, ``x_i, x_j <- (x_i + x_j) / 2``, and takes its local step with that gradient,
which is stale by what happened since. Pairs average one after the other in the order of their times, so that
no cycle of workers can wait for each other, on an odd ring or anywhere.

The exchange is begun together with the computing, and both must be done before the pair averages: an exchange
waits until both links are free. Nothing here knows what a model is; :class:`Replicas` are told what to do.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from hf_decentral.cluster.draws import Purpose, uniform
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.links import Links
from hf_decentral.cluster.members import Members, Neighbours, givers, partners
from hf_decentral.errors import out_of_range

_NOBODY = -1


class Replicas(Protocol):
    """What the workers hold. The driver calls these one after the other."""

    def read(self, worker: int) -> None:
        """Keep a copy of the worker's parameters."""

    def gradients(self, workers: Sequence[int], steps: Sequence[int]) -> None:
        """Take the gradients of these workers at their copies, all at once if that is cheaper.

        Each is asked for once after each :meth:`read`, at any time before the worker's :meth:`step`.

        Args:
            workers: ascending.
            steps: for each of them the number of its own step, from 0, for its batch of data.
        """

    def average(self, i: int, j: int) -> None:
        """Put the mean of both in the place of the parameters of both."""

    def step(self, worker: int) -> None:
        """Take the worker's local step on its present parameters, with its gradient."""

    def adopt(self, worker: int, giver: int) -> None:
        """Let a worker that joins begin with the parameters of another one."""


class Staleness(NamedTuple):
    """How many local steps all workers took between the reading for a gradient and its use."""

    mean: float
    max: int


class _Kind(IntEnum):
    """What happens; at one and the same time in this order."""

    DEATH = 0
    JOIN = 1
    FINISH = 2


class _Event(NamedTuple):
    """One entry of the queue. ``life`` counts how often the worker had died when it was made."""

    time: float
    kind: int
    worker: int
    life: int


class Pairs:
    """The driver: a queue of events in virtual time.

    Args:
        cluster: compute times and links.
        neighbours: for each worker those with whom it averages (:func:`~hf_decentral.cluster.neighbours`).
        seed: of compute times and partners.
        message_bytes: what one of a pair sends to the other.
        split: only odd workers begin averages, and with even ones only, as the authors' processes do;
            a pair of equal parity then never averages.
        deaths: when, in seconds, a worker takes no more part.
        joins: when it joins, or joins again, with the parameters of a neighbour.

    Attributes:
        seconds: virtual time of the latest event.
        updates: local steps taken by all workers together.
        averages: pairs that averaged.
        steps: local steps of each worker.

    Raises:
        SettingsError: the cluster, deaths or joins are of other workers.
        TopologyError: some workers never meet the others, or at some time nobody takes part.
    """

    def __init__(
        self,
        cluster: Cluster,
        neighbours: Neighbours,
        seed: int = 0,
        message_bytes: float = 0.0,
        split: bool = False,
        deaths: Mapping[int, float] | None = None,
        joins: Mapping[int, float] | None = None,
    ) -> None:
        workers = len(neighbours)
        cluster.check(workers)
        members = Members(workers, deaths or {}, joins or {})
        self._partners = partners(neighbours, split)
        self._cluster, self._neighbours, self._seed, self._bytes = cluster, neighbours, seed, message_bytes
        self._links = Links(cluster, workers)
        self.seconds, self.updates, self.averages = 0.0, 0, 0
        self.steps = [0] * workers
        self._stale_sum = self._stale_max = 0
        self._absent = set(members.absent(-1))
        self._lives = [0] * workers
        self._read_at = [0] * workers  # updates when a worker read its parameters
        self._partner = [_NOBODY] * workers
        self._free_at = [0.0] * workers  # when a worker's link is free again
        self._unknown: set[int] = set()  # whoever has read, and whose gradient was not taken yet
        self._queue = [_Event(time, _Kind.DEATH, worker, 0) for worker, time in members.deaths.items()]
        self._queue += [_Event(time, _Kind.JOIN, worker, 0) for worker, time in members.joins.items()]
        heapq.heapify(self._queue)
        self._begun = False

    @property
    def workers(self) -> int:
        """Number of workers, ``W``."""
        return len(self.steps)

    @property
    def absent(self) -> frozenset[int]:
        """The workers that take no part at present."""
        return frozenset(self._absent)

    @property
    def sent_bytes(self) -> float:
        """What a worker has sent so far, on average over all workers."""
        return 2 * self.averages * self._bytes / self.workers

    @property
    def staleness(self) -> Staleness:
        """Of all gradients that were used so far."""
        return Staleness(self._stale_sum / max(1, self.updates), self._stale_max)

    def drive(self, replicas: Replicas, *, seconds: float = math.inf, updates: float = math.inf) -> None:
        """Let things happen until the next one is later than ``seconds``, or ``updates`` local steps were
        taken, both counted from the beginning of the run.

        Args:
            replicas: of all workers; the same ones in every call.
            seconds: virtual time.
            updates: local steps of all workers together; ``W`` of them are as much work as a step in lock
                step.

        Raises:
            SettingsError: neither is given, so that it would never end.
        """
        if seconds == updates == math.inf:
            advice = "give either, such as updates=500 * workers"
            raise out_of_range("seconds", seconds, "an end, in seconds or in updates", advice)
        if not self._begun:
            self._begun = True
            for worker in range(self.workers):
                if worker not in self._absent:
                    self._begin(worker, replicas)
        while self._queue and self.updates < updates and self._queue[0].time <= seconds:
            event = heapq.heappop(self._queue)
            if event.kind == _Kind.FINISH and event.life != self._lives[event.worker]:
                continue  # it died meanwhile
            self.seconds = event.time
            if event.kind == _Kind.FINISH:
                self._finish(event.worker, replicas)
            elif event.kind == _Kind.DEATH:
                self._die(event.worker)
            else:
                self._join(event.worker, replicas)

    def state(self) -> dict[str, Any]:
        """What :meth:`load` needs to go on from here, as plain numbers; replicas keep their own."""
        return {name.lstrip("_"): _plain(getattr(self, name)) for name in _STATE}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        for name in _STATE:
            kept, value = getattr(self, name), state[name.lstrip("_")]
            setattr(self, name, type(kept)(value))
        self._queue = [_Event(*event) for event in self._queue]

    def _begin(self, worker: int, replicas: Replicas) -> None:
        """Read, and begin to compute and to exchange with a partner."""
        now, step = self.seconds, self.steps[worker]
        replicas.read(worker)
        self._unknown.add(worker)
        self._read_at[worker] = self.updates
        ends = now + self._cluster.seconds_of(worker, step, self._seed)
        partner = self._partner[worker] = self._draw(worker)
        if partner != _NOBODY:
            free = max(now, self._free_at[worker], self._free_at[partner])
            free += self._links.pair_seconds(worker, partner, self._bytes)
            self._free_at[worker] = self._free_at[partner] = free
            ends = max(ends, free)
        heapq.heappush(self._queue, _Event(ends, _Kind.FINISH, worker, self._lives[worker]))

    def _finish(self, worker: int, replicas: Replicas) -> None:
        """Average with the partner, then take the local step."""
        if worker in self._unknown:
            asked = sorted(self._unknown)
            replicas.gradients(asked, [self.steps[each] for each in asked])
            self._unknown.clear()
        partner = self._partner[worker]
        if partner in self._absent:
            partner = self._draw(worker)
        if partner != _NOBODY:
            replicas.average(worker, partner)
            self.averages += 1
        replicas.step(worker)
        stale = self.updates - self._read_at[worker]
        self._stale_sum += stale
        self._stale_max = max(self._stale_max, stale)
        self.updates += 1
        self.steps[worker] += 1
        self._begin(worker, replicas)

    def _draw(self, worker: int) -> int:
        """A partner among those who take part."""
        there = self._partners[worker]
        if self._absent:
            there = [j for j in there if j not in self._absent]
        if not there:
            return _NOBODY
        return there[int(uniform(self._seed, self.steps[worker], worker, Purpose.PARTNER) * len(there))]

    def _die(self, worker: int) -> None:
        self._absent.add(worker)
        self._unknown.discard(worker)
        self._lives[worker] += 1

    def _join(self, worker: int, replicas: Replicas) -> None:
        found = givers(worker, self._neighbours, self._absent)
        if found:
            u = uniform(self._seed, self._lives[worker], worker, Purpose.GIVER)
            replicas.adopt(worker, found[int(u * len(found))])
        self._absent.discard(worker)
        self._begin(worker, replicas)


def _plain(value: Any) -> Any:
    """A number as it is, a collection as a list of its own."""
    if isinstance(value, set):
        return sorted(value)
    if not isinstance(value, list):
        return value
    return [
        (each.time, int(each.kind), each.worker, each.life) if isinstance(each, _Event) else each
        for each in value
    ]


_STATE = (
    "seconds",
    "updates",
    "averages",
    "steps",
    "_stale_sum",
    "_stale_max",
    "_absent",
    "_lives",
    "_read_at",
    "_partner",
    "_free_at",
    "_unknown",
    "_queue",
    "_begun",
)
