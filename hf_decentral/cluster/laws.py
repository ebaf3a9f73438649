"""What a cluster is, as far as time goes: how long a worker computes, and what its links carry."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from hf_decentral.cluster.draws import Purpose, Vector, uniform, uniforms
from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.cluster import not_a_law, wrong_law
from hf_decentral.topology.base import Hosts

_NUMBER = r"(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
_LAW = re.compile(rf"\s*([a-z]+)\s*\(\s*({_NUMBER}(?:\s*,\s*{_NUMBER})*)\s*\)\s*")
_ALONE = re.compile(rf"\s*({_NUMBER})\s*")
_LEAST = 2  # points of an empirical distribution

Numbers = tuple[float, ...]


def _normal(u: Vector) -> Vector:
    """The standard normal deviates of the quantiles ``u``."""
    deviates: Vector = torch.special.ndtri(torch.from_numpy(u)).numpy()
    return deviates


def _between(points: Numbers, u: Vector) -> Vector:
    """Linear between the points, which lie evenly from quantile 0 to quantile 1."""
    return np.interp(u, np.linspace(0.0, 1.0, len(points)), points)


class _Kind(NamedTuple):
    """One row: how it is written, how many numbers it takes, what they must be, its quantiles, its mean."""

    written: str
    counts: Callable[[int], bool]
    valid: Callable[[Numbers], bool]
    expected: str
    quantile: Callable[[Numbers, Vector], Vector]
    mean: Callable[[Numbers], float]


_KINDS: dict[str, _Kind] = {
    "constant": _Kind(
        "constant(SECONDS)",
        lambda count: count == 1,
        lambda n: n[0] > 0,
        "seconds above 0",
        lambda n, u: np.full_like(u, n[0]),
        lambda n: n[0],
    ),
    "exponential": _Kind(
        "exponential(SHIFT, MEAN)",
        lambda count: count == 2,
        lambda n: n[1] > 0,
        "the least seconds, 0 or more, and the mean of what comes on top, above 0",
        lambda n, u: n[0] - n[1] * np.log1p(-u),
        lambda n: n[0] + n[1],
    ),
    "gaussian": _Kind(
        "gaussian(MEAN, DEVIATION)",
        lambda count: count == 2,
        lambda n: n[0] >= 3 * n[1] and n[0] > 0,
        "seconds above 0, and a standard deviation of at most a third of them (few times are then cut)",
        lambda n, u: np.maximum(n[0] + n[1] * _normal(u), n[0] / 100),
        lambda n: n[0],
    ),
    "lognormal": _Kind(
        "lognormal(MEDIAN, SIGMA)",
        lambda count: count == 2,
        lambda n: n[0] > 0 and n[1] <= 3,
        "the median in seconds, above 0, and the standard deviation of the logarithm, at most 3",
        lambda n, u: n[0] * np.exp(n[1] * _normal(u)),
        lambda n: n[0] * math.exp(n[1] * n[1] / 2),
    ),
    "empirical": _Kind(
        "empirical(SHORTEST, ..., LONGEST)",
        lambda count: count >= _LEAST,
        lambda n: n[0] > 0 and all(a <= b for a, b in pairwise(n)),
        "ascending seconds above 0, which lie at even quantiles from 0 to 1, two or more",
        _between,
        lambda n: (sum(n) - (n[0] + n[-1]) / 2) / (len(n) - 1),
    ),
}


@dataclass(frozen=True)
class Law:
    """The distribution of a time in seconds.

    Attributes:
        kind: a name of :func:`kinds`.
        numbers: those in its brackets.
    """

    kind: str
    numbers: Numbers

    def at(self, quantiles: Vector) -> Vector:
        """The times ``[W]`` of some quantiles between 0 and 1."""
        return _KINDS[self.kind].quantile(self.numbers, quantiles)

    @property
    def mean(self) -> float:
        """The expected time, in seconds."""
        return _KINDS[self.kind].mean(self.numbers)

    @property
    def text(self) -> str:
        """As :func:`law` reads it."""
        return f"{self.kind}({', '.join(f'{number:.9g}' for number in self.numbers)})"

    def times(self, factor: float) -> Law:
        """The distribution of times that are so many times longer."""
        scales = 1 if self.kind == "lognormal" else len(self.numbers)  # its second number has no unit
        return Law(self.kind, (*(n * factor for n in self.numbers[:scales]), *self.numbers[scales:]))


def kinds() -> list[str]:
    """How each distribution is written."""
    return [kind.written for kind in _KINDS.values()]


def law(text: str) -> Law:
    """The distribution that a text describes.

    Args:
        text: seconds as a number (constant), or one of ``"gaussian(0.1, 0.02)"`` (mean, standard deviation),
            ``"exponential(0.05, 0.05)"`` (a shift, and the mean of an exponential time on top of it),
            ``"lognormal(0.1, 0.3)"`` (median, standard deviation of the logarithm) and
            ``"empirical(0.09, 0.1, 0.2)"`` (measured times at even quantiles, the median in the middle).

    Raises:
        SettingsError: it is none of these, or its numbers are no times.
    """
    alone = _ALONE.fullmatch(str(text))
    found = _LAW.fullmatch(str(text))
    if alone:
        name, written = "constant", alone[1]
    elif found:
        name, written = found[1], found[2]
    else:
        raise not_a_law(str(text), kinds())
    if name not in _KINDS:
        raise unknown_name("distribution of compute times", name, _KINDS)
    kind = _KINDS[name]
    numbers = tuple(float(number) for number in written.split(","))
    if not kind.counts(len(numbers)) or not sum(numbers) < math.inf or not kind.valid(numbers):
        raise wrong_law(str(text), kind.written, kind.expected)
    return Law(name, numbers)


@dataclass(frozen=True)
class Cluster:
    """Compute times and links of the workers of a run.

    Attributes:
        compute: the distribution of a step's compute time, as :func:`law` reads it.
        slow: factors on the compute time of some workers, such as ``{3: 2.0}`` for a straggler.
        link: the rate of each host's link to the network in either direction, such as ``"1gbit"``;
            ``"none"``: nothing slows it down.
        latency: seconds until the first bit of a message over the network arrives.
        hosts: the host of each worker; None: each is a host of its own.
        inside: the rate at which a worker sends to others of its own host.
        inside_latency: seconds until the first bit of such a message arrives.
        half_duplex: the directions of a link take turns, so that an exchange takes twice as long.
        collective: how many times longer than its formula an all-reduce takes, as a library was measured.
        crowding: how many times longer than its share of a link messages to several workers take.
        correlation: of the compute times of two workers in one step, from 0 to 1 (as normal deviates).

    Raises:
        SettingsError: one of them cannot be meant.
    """

    compute: str = "0.1"
    slow: Mapping[int, float] = field(default_factory=dict)
    link: str = "none"
    latency: float = 0.0
    hosts: Hosts = None
    inside: str = "none"
    inside_latency: float = 0.0
    half_duplex: bool = False
    collective: float = 1.0
    crowding: float = 1.0
    correlation: float = 0.0

    def __post_init__(self) -> None:
        law(self.compute)
        bits_per_second(self.link)
        bits_per_second(self.inside)
        for name in ("latency", "inside_latency"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise out_of_range(name, value, "seconds, 0 or more", "0 is a link without latency")
        for name in ("collective", "crowding"):
            if not 0 < getattr(self, name) < math.inf:
                advice = "1 is as fast as the formula"
                raise out_of_range(name, getattr(self, name), "a factor above 0", advice)
        if not 0 <= self.correlation <= 1:
            advice = "0: every worker has its own luck; 1: all have the same"
            raise out_of_range("correlation", self.correlation, "a number from 0 to 1", advice)
        for worker, factor in self.slow.items():
            if worker < 0 or not 0 < factor < math.inf:
                advice = "2.0 makes a worker twice as slow, 0.5 twice as fast"
                raise out_of_range("slow", dict(self.slow), "factors above 0 of workers from 0 on", advice)

    @cached_property
    def law(self) -> Law:
        """The distribution of a step's compute time, before :attr:`slow`."""
        return law(self.compute)

    def check(self, workers: int) -> None:
        """Refuse a run of so many workers if this describes others.

        Raises:
            SettingsError: it names hosts for another number, or slows a worker that is not there.
        """
        if self.hosts is not None and len(self.hosts) != workers:
            advice = "give the host of each worker, or leave it out for one worker a host"
            raise out_of_range("hosts", list(self.hosts), f"{workers} numbers, one a worker", advice)
        if self.slow and max(self.slow) >= workers:
            advice = f"the workers of this run are 0 to {workers - 1}"
            raise out_of_range("slow", dict(self.slow), f"workers below {workers}", advice)

    def seconds(self, workers: int, step: int, seed: int = 0) -> Vector:
        """How long each worker computes in a step, ``[W]`` in seconds: a function of these arguments."""
        times = self.law.at(self._shared(uniforms(seed, step, workers, Purpose.COMPUTE), step, seed))
        for worker, factor in self.slow.items():
            times[worker] *= factor
        return times

    def seconds_of(self, worker: int, step: int, seed: int = 0) -> float:
        """The same for one worker."""
        own = np.array([uniform(seed, step, worker, Purpose.COMPUTE)])
        return float(self.law.at(self._shared(own, step, seed))[0]) * self.slow.get(worker, 1.0)

    def _shared(self, quantiles: Vector, step: int, seed: int) -> Vector:
        """The quantiles ``[W]`` with a part that all workers have in common: a Gaussian copula."""
        if not self.correlation:
            return quantiles
        common = _normal(np.array([uniform(seed, step, 0, Purpose.COMMON)]))
        mixed = math.sqrt(1 - self.correlation) * _normal(quantiles) + math.sqrt(self.correlation) * common
        shared: Vector = torch.special.ndtr(torch.from_numpy(mixed)).numpy()
        return shared
