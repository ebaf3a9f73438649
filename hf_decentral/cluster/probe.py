"""How fast the links of a run are: measured over the same library and wires by which training will talk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch.distributed as dist

from hf_decentral.cluster.exchanges import (
    Make,
    Pattern,
    Wire,
    between,
    crowded,
    exchanges,
    inside,
    matchings,
    one_way,
)
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.lines import Line, Row, line, row
from hf_decentral.cluster.links import Links
from hf_decentral.cluster.rates import rate
from hf_decentral.errors import out_of_range
from hf_decentral.topology.base import hosts_members
from hf_decentral.transport.lost import Notes, cause_of, of_the_wire

SMALLEST_BYTES, GROWTH, MOST_BYTES = 1024, 4, 64 * 2**20
FEWEST_REPEATS, MOST_REPEATS = 3, 25
FEWEST_SIZES = 3
"""So many sizes are measured however long they take."""
HALF_DUPLEX = 1.7
"""From here on both directions at once take as long as one after the other."""
_BITS = 8
_LEAST_FACTOR = 0.01


@dataclass(frozen=True)
class Probed:
    """The links of a run.

    Attributes:
        hosts: the host of each worker.
        between: the links between hosts; None where there is one host.
        inside: from worker to worker inside a host; None where no host has two.
        half_duplex: the directions of a link between hosts take turns.
        collective: how many times longer an all-reduce over all workers takes than its formula says.
        reduced: the all-reduces, by size.
        backend: what carried the messages.
        crowding: how many times longer than its share of a link each of two messages takes.
    """

    hosts: tuple[int, ...]
    between: Line | None = None
    inside: Line | None = None
    half_duplex: bool = False
    collective: float = 1.0
    reduced: tuple[Row, ...] = ()
    backend: str = ""
    crowding: float = 1.0

    @property
    def cluster(self) -> Cluster:
        """The links as a cluster; what its workers compute is not said."""
        return Cluster(
            hosts=self.hosts,
            link=_rate(self.between),
            latency=self.between.latency if self.between else 0.0,
            inside=_rate(self.inside),
            inside_latency=self.inside.latency if self.inside else 0.0,
            half_duplex=self.half_duplex,
            collective=self.collective,
            crowding=self.crowding,
        )


Progress = Callable[[str], object]
"""Called after each measurement with what is measured."""


def probe(
    hosts: Sequence[int], *, largest_bytes: int, seconds: float, progress: Progress = lambda what: None
) -> Probed:
    """Measure the links between and inside hosts, all at once and both ways, and an all-reduce. Collective.

    Messages grow from 1 KB on while there is time; the slowest worker counts. Nothing else may talk
    meanwhile.

    Args:
        hosts: the host of each worker, ``[W]``.
        largest_bytes: of a message; beyond 64 MiB nothing changes any more.
        seconds: about how long it may take; the same on all workers.
        progress: what to call after each measurement.

    Raises:
        SettingsError: hosts for another number of workers.
        PeerLost: a worker did not answer.
    """
    if len(hosts) == 1:
        return Probed(tuple(hosts))
    if len(hosts) != dist.get_world_size():
        expected = f"{dist.get_world_size()} numbers, one a worker"
        raise out_of_range("hosts", list(hosts), expected, "give the host of each worker")
    with naming():
        return _Probe(hosts, largest_bytes, seconds, progress).run()


class _Probe:
    """One measurement."""

    def __init__(self, hosts: Sequence[int], largest: int, seconds: float, progress: Progress) -> None:
        self._hosts, self._progress, self._seconds = tuple(hosts), progress, seconds
        largest = min(max(largest, SMALLEST_BYTES * GROWTH**FEWEST_SIZES), MOST_BYTES)
        self._sizes = [SMALLEST_BYTES]
        while self._sizes[-1] * GROWTH <= largest / 2:
            self._sizes.append(self._sizes[-1] * GROWTH)
        self._sizes.append(largest)
        self._wire = Wire(largest)

    def run(self) -> Probed:
        self._wire.together()
        several = between(self._hosts) and inside(self._hosts)
        share = self._seconds * (0.25 if several else 0.5)
        across = self._line(between, share, "links between hosts")
        half = across is not None and self._takes_turns(across, self._seconds * 0.1)
        within = self._line(inside, share, "links inside hosts")
        crowding = self._crowding(across or within, self._seconds * 0.1)
        if half:
            across, within = _one_direction(across), _one_direction(within)
        backend = "nccl" if self._wire.nccl else "gloo"
        found = Probed(self._hosts, across, within, half, crowding=crowding, backend=backend)
        rows = self._all_reduces(self._seconds * 0.3)
        return replace(found, collective=collective(found.cluster, len(self._hosts), rows), reduced=rows)

    def _line(
        self, where: Callable[[Sequence[int], Make], list[Pattern]], seconds: float, what: str
    ) -> Line | None:
        """The links of one kind; all patterns are measured at each size."""
        patterns = where(self._hosts, exchanges)
        if not patterns:
            return None
        rows = []
        for size, repeats in self._growing(partial(self._exchange, patterns[0]), self._sizes, seconds):
            each = max(FEWEST_REPEATS, repeats // len(patterns))
            times = [self._wire.times(partial(self._exchange, p, size), each) for p in patterns]
            rows.append(row(size, np.concatenate([each.max(axis=0) for each in times]).tolist()))
            self._progress(what)
        return line(rows, self._rates(where(self._hosts, matchings), rows[-1].bytes))

    def _exchange(self, pattern: Pattern, size: int) -> bool:
        return self._wire.exchange(pattern, size)

    def _growing(
        self, act: Callable[[int], bool], sizes: Sequence[int], seconds: float, together: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Sizes, as long as there is time, and how often each can be repeated. All workers see the same."""
        until = self._wire.elapsed + seconds
        for k, size in enumerate(sizes):
            once = float(self._wire.times(partial(act, size), 1, together).max())
            left = max(0.0, until - self._wire.elapsed)
            if k >= FEWEST_SIZES and once * FEWEST_REPEATS > left:
                return
            share = left / (len(sizes) - k)
            yield size, int(min(max(share / max(once, 1e-9), FEWEST_REPEATS), MOST_REPEATS))
            if k + 1 < len(sizes):
                following = once * sizes[k + 1] / size * FEWEST_REPEATS
                if k + 1 >= FEWEST_SIZES and following > until - self._wire.elapsed:
                    return

    def _takes_turns(self, both: Line, seconds: float) -> bool:
        """Whether one direction between hosts alone takes about half as long as both."""
        at = _heaviest(both, seconds)
        (pattern,) = between(self._hosts, lambda members: [one_way(members)])
        return at.seconds >= HALF_DUPLEX * self._once(pattern, at.bytes, "one way")

    def _crowding(self, alone: Line | None, seconds: float) -> float:
        """What two messages on one link take, over twice the time of one; at least 1."""
        pattern = crowded(self._hosts)
        if alone is None or not pattern:
            return 1.0
        at = _heaviest(alone, seconds / 2)
        both = self._once(pattern, at.bytes, "two on a link")
        bytes_alone = at.bytes * _BITS / alone.bits_per_second
        return max(1.0, (both - alone.latency) / (2 * bytes_alone))

    def _once(self, pattern: Pattern, size: int, what: str) -> float:
        """The median of a few exchanges that all workers begin at once, after one that does not count."""
        act = partial(self._exchange, pattern, size)
        self._wire.times(act, 1, together=True)
        times = self._wire.times(act, FEWEST_REPEATS + 2, together=True)
        self._progress(what)
        return float(np.median(times.max(axis=0)))

    def _all_reduces(self, seconds: float) -> tuple[Row, ...]:
        largest = self._sizes[-1]
        sizes = [largest // 16, largest // 4, largest]
        rows = []
        for size, repeats in self._growing(self._wire.all_reduce, sizes, seconds, together=True):
            times = self._wire.times(partial(self._wire.all_reduce, size), repeats, together=True)
            rows.append(row(size, times.max(axis=0).tolist()))
            self._progress("all-reduce")
        return tuple(rows)

    def _rates(self, patterns: Sequence[Pattern], size: int) -> tuple[float, ...]:
        """Of each host what its slowest worker reached with its better partner, in bits per second."""
        times = [self._wire.times(partial(self._exchange, p, size), FEWEST_REPEATS) for p in patterns]
        middles = np.stack([np.median(each, axis=1) for each in times])
        fastest = np.where(middles > 0, middles, np.inf).min(axis=0)  # 0: it took no part
        rates = [_BITS * size / each for each in fastest]
        return tuple(
            float(min((rates[i] for i in group if rates[i] > 0), default=0.0))
            for group in hosts_members(len(rates), self._hosts)
        )


def collective(cluster: Cluster, workers: int, rows: Sequence[Row]) -> float:
    """How many times longer all-reduces took than their formula, for the bytes alone.

    Args:
        cluster: the links, with ``collective=1``.
        workers: how many took part.
        rows: the all-reduces.
    """
    groups = Links(cluster, workers).together().groups
    ratios, heavy = [], []
    for each in rows:
        way = int(np.argmin(groups.latency[0] + each.bytes * groups.per_byte[0]))  # ring or tree
        latency, bytes_alone = float(groups.latency[0, way]), each.bytes * float(groups.per_byte[0, way])
        ratios.append(max(_LEAST_FACTOR, (each.seconds - latency) / bytes_alone) if bytes_alone else 1.0)
        if each.seconds > 2 * latency:  # else latency hides the bytes
            heavy.append(ratios[-1])
    return float(np.median(heavy[-2:])) if heavy else ratios[-1] if ratios else 1.0


def _heaviest(alone: Line, seconds: float) -> Row:
    """The largest messages of which a few can be sent in some time."""
    few = FEWEST_REPEATS + 3
    return next(
        each for each in reversed(alone.rows) if each.seconds * few < seconds or each is alone.rows[0]
    )


def _one_direction(both: Line | None) -> Line | None:
    """The rate of a direction that has the link for itself."""
    if both is None:
        return None
    rates = tuple(2 * each for each in both.rates)
    return Line(2 * both.bits_per_second, both.latency, both.spread, rates, both.rows)


def _rate(found: Line | None) -> str:
    return rate(None if found is None else found.bits_per_second)


@contextmanager
def naming() -> Iterator[None]:
    """Inside, an error of torch.distributed becomes one that names the worker that was lost.

    Raises:
        PeerLost: in its place.
    """
    try:
        yield
    except RuntimeError as error:
        if not of_the_wire(error):
            raise
        me = dist.get_rank()
        others = [worker for worker in range(dist.get_world_size()) if worker != me]
        raise Notes(me, "probe").explain(others, -1, None, None, cause_of(error)) from error
