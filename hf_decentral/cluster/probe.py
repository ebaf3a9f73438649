"""How fast the links of a run are: measured over the same library and wires by which training will talk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch.distributed as dist

from hf_decentral.cluster.exchanges import Pattern, Times, Wire, between, crowd, inside, one_way
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
        crowding: how many times longer than two exchanges one after the other a worker's two at once take.
        reduced: the all-reduces, by size.
        backend: what carried the messages.
    """

    hosts: tuple[int, ...]
    between: Line | None = None
    inside: Line | None = None
    half_duplex: bool = False
    collective: float = 1.0
    crowding: float = 1.0
    reduced: tuple[Row, ...] = ()
    backend: str = ""

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
        patterns, near = between(self._hosts), inside(self._hosts)
        share = self._seconds * (0.3 if patterns and near else 0.5)
        across = self._line(patterns, share, "links between hosts")
        half = across is not None and self._takes_turns(across, patterns[0], self._seconds * 0.1)
        crowding = 1.0 if across is None else self._crowding(across, self._seconds * 0.1)
        within = self._line(near, share, "links inside hosts")
        if half:
            across, within = _one_direction(across), _one_direction(within)
        found = Probed(self._hosts, across, within, half, crowding=crowding, backend=str(dist.get_backend()))
        rows = self._all_reduces(self._seconds * 0.3)
        return replace(found, collective=collective(found.cluster, len(self._hosts), rows), reduced=rows)

    def _crowding(self, both: Line, seconds: float) -> float:
        """How much longer two exchanges at once take, than the largest ones for which there is time."""
        patterns = crowd(self._hosts)
        if not patterns:
            return 1.0
        at = next((each for each in reversed(both.rows) if each.seconds * 8 < seconds), both.rows[0])
        act = partial(self._wire.exchange, at.bytes, *patterns)
        self._wire.times(act, 1, together=True)
        times = self._wire.times(act, FEWEST_REPEATS, together=True)
        self._progress("two at once")
        alone = at.seconds - both.latency
        if alone <= both.latency:  # latency hides the bytes
            return 1.0
        crowded = float(np.median(times.max(axis=0))) - both.latency
        return max(1.0, crowded / (2 * alone))

    def _line(self, patterns: Sequence[Pattern], seconds: float, what: str) -> Line | None:
        """The links on which these exchanges travel; both patterns are measured at each size."""
        if not patterns:
            return None
        rows, last = [], []
        for size, repeats in self._growing(partial(self._exchange, patterns[0]), self._sizes, seconds):
            each = max(FEWEST_REPEATS, repeats // len(patterns))
            last = [self._wire.times(partial(self._exchange, p, size), each) for p in patterns]
            rows.append(row(size, np.concatenate([times.max(axis=0) for times in last]).tolist()))
            self._progress(what)
        return line(rows, self._rates(last, rows[-1].bytes))

    def _exchange(self, pattern: Pattern, size: int) -> bool:
        return self._wire.exchange(size, pattern)

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

    def _takes_turns(self, both: Line, pattern: Pattern, seconds: float) -> bool:
        """Whether one direction alone takes about half as long as both."""
        single = one_way(sorted(pattern))
        at = next(each for each in reversed(both.rows) if each.seconds * 4 < seconds or each is both.rows[0])
        act = partial(self._wire.exchange, at.bytes, single)
        self._wire.times(act, 1, together=True)
        times = self._wire.times(act, FEWEST_REPEATS + 2, together=True)
        self._progress("one way")
        return bool(at.seconds >= HALF_DUPLEX * float(np.median(times.max(axis=0))))

    def _all_reduces(self, seconds: float) -> tuple[Row, ...]:
        largest = self._sizes[-1]
        sizes = [largest // 16, largest // 4, largest]
        rows = []
        for size, repeats in self._growing(self._wire.all_reduce, sizes, seconds, together=True):
            times = self._wire.times(partial(self._wire.all_reduce, size), repeats, together=True)
            rows.append(row(size, times.max(axis=0).tolist()))
            self._progress("all-reduce")
        return tuple(rows)

    def _rates(self, last: Sequence[Times], size: int) -> tuple[float, ...]:
        """Of each host what its slowest worker reached in the better pattern, in bits per second."""
        per_worker = np.stack([np.median(times, axis=1) for times in last])
        per_worker = np.where(per_worker > 0, per_worker, np.inf).min(axis=0)
        rates = np.where(np.isfinite(per_worker), _BITS * size / per_worker, np.inf)
        found = [float(min(rates[i] for i in group)) for group in hosts_members(len(rates), self._hosts)]
        return tuple(each if np.isfinite(each) else 0.0 for each in found)


def collective(cluster: Cluster, workers: int, rows: Sequence[Row]) -> float:
    """How many times longer all-reduces took than their formula, for the bytes alone.

    Args:
        cluster: the links, with ``collective=1``.
        workers: how many took part.
        rows: the all-reduces.
    """
    latency, per_byte = Links(cluster, workers).all_reduce(range(workers))
    ratios = [(each.seconds - latency) / (each.bytes * per_byte) for each in rows if per_byte]
    # Where latency is most of the time, it hides the bytes.
    heavy = [
        ratio
        for ratio, each in zip(ratios, rows, strict=False)
        if each.seconds > 2 * latency and ratio > _LEAST_FACTOR
    ]
    if heavy:
        return float(heavy[-1])
    return max(_LEAST_FACTOR, ratios[-1]) if ratios else 1.0


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
