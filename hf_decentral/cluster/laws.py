"""What a cluster is, as far as time goes: how long a worker computes, and what its links carry."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from hf_decentral.cluster.draws import Purpose, Vector, uniform, uniforms
from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.cluster import not_a_law, wrong_law
from hf_decentral.topology.base import Hosts

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
_LAW = re.compile(rf"\s*([a-z]+)\s*\(\s*({_NUMBER})\s*(?:,\s*({_NUMBER})\s*)?\)\s*")
_ALONE = re.compile(rf"\s*({_NUMBER})\s*")


def _normal(u: Vector) -> Vector:
    """The standard normal deviates of the quantiles ``u``."""
    deviates: Vector = torch.special.ndtri(torch.from_numpy(u)).numpy()
    return deviates


class _Kind(NamedTuple):
    """One row: how it is written, what its numbers must be, its quantiles, its mean."""

    written: str
    valid: Callable[[float, float], bool]
    expected: str
    quantile: Callable[[float, float, Vector], Vector]
    mean: Callable[[float, float], float]


_KINDS: dict[str, _Kind] = {
    "constant": _Kind(
        "constant(SECONDS)",
        lambda a, b: a > 0,
        "seconds above 0",
        lambda a, b, u: np.full_like(u, a),
        lambda a, b: a,
    ),
    "exponential": _Kind(
        "exponential(SHIFT, MEAN)",
        lambda a, b: b > 0,
        "the least seconds, 0 or more, and the mean of what comes on top, above 0",
        lambda a, b, u: a - b * np.log1p(-u),
        lambda a, b: a + b,
    ),
    "gaussian": _Kind(
        "gaussian(MEAN, DEVIATION)",
        lambda a, b: a >= 3 * b and a > 0,
        "seconds above 0, and a standard deviation of at most a third of them (few times are then cut)",
        lambda a, b, u: np.maximum(a + b * _normal(u), a / 100),
        lambda a, b: a,
    ),
    "lognormal": _Kind(
        "lognormal(MEDIAN, SIGMA)",
        lambda a, b: a > 0 and b <= 3,
        "the median in seconds, above 0, and the standard deviation of the logarithm, at most 3",
        lambda a, b, u: a * np.exp(b * _normal(u)),
        lambda a, b: a * math.exp(b * b / 2),
    ),
}


@dataclass(frozen=True)
class Law:
    """The distribution of a time in seconds.

    Attributes:
        kind: a name of :func:`kinds`.
        first: the first number in its brackets.
        second: the second one, 0 where it has none.
    """

    kind: str
    first: float
    second: float = 0.0

    def at(self, quantiles: Vector) -> Vector:
        """The times ``[W]`` of some quantiles between 0 and 1."""
        return _KINDS[self.kind].quantile(self.first, self.second, quantiles)

    @property
    def mean(self) -> float:
        """The expected time, in seconds."""
        return _KINDS[self.kind].mean(self.first, self.second)


def kinds() -> list[str]:
    """How each distribution is written."""
    return [kind.written for kind in _KINDS.values()]


def law(text: str) -> Law:
    """The distribution that a text describes.

    Args:
        text: seconds as a number (constant), or one of ``"gaussian(0.1, 0.02)"`` (mean, standard deviation),
            ``"exponential(0.05, 0.05)"`` (a shift, and the mean of an exponential time on top of it) and
            ``"lognormal(0.1, 0.3)"`` (median, standard deviation of the logarithm).

    Raises:
        SettingsError: it is none of these, or its numbers are no times.
    """
    alone = _ALONE.fullmatch(str(text))
    found = _LAW.fullmatch(str(text))
    if alone:
        name, numbers = "constant", [alone[1]]
    elif found:
        name, numbers = found[1], [number for number in found.groups()[1:] if number is not None]
    else:
        raise not_a_law(str(text), kinds())
    if name not in _KINDS:
        raise unknown_name("distribution of compute times", name, _KINDS)
    kind = _KINDS[name]
    first, second, *_ = [float(number) for number in numbers] + [0.0]
    finite = first + second < math.inf
    if len(numbers) != kind.written.count(",") + 1 or not finite or not kind.valid(first, second):
        raise wrong_law(str(text), kind.written, kind.expected)
    return Law(name, first, second)


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

    def __post_init__(self) -> None:
        law(self.compute)
        bits_per_second(self.link)
        bits_per_second(self.inside)
        for name in ("latency", "inside_latency"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise out_of_range(name, value, "seconds, 0 or more", "0 is a link without latency")
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
        times = self.law.at(uniforms(seed, step, workers, Purpose.COMPUTE))
        for worker, factor in self.slow.items():
            times[worker] *= factor
        return times

    def seconds_of(self, worker: int, step: int, seed: int = 0) -> float:
        """The same for one worker."""
        times = self.law.at(np.array([uniform(seed, step, worker, Purpose.COMPUTE)]))
        return float(times[0]) * self.slow.get(worker, 1.0)
