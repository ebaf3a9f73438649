"""What was measured of a cluster and of a model on it: what ``calibrate`` writes and ``plan`` reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from operator import index
from pathlib import Path
from typing import Any

from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.rates import bits_per_second, rate
from hf_decentral.errors import SettingsError, out_of_range
from hf_decentral.errors.cluster import not_a_cluster_file

VERSION = 1
Piece = tuple[float, float]
"""When a gradient is there, as a share of backward, and its share of the bytes."""

EVEN: tuple[Piece, ...] = tuple(((k + 1) / 16, 1 / 16) for k in range(16))
"""Sixteen layers that are all alike."""


@dataclass(frozen=True)
class Coding:
    """What an averaging method costs beside the wire.

    Attributes:
        payload: bytes of a message, as a share of the parameters' bytes.
        before_seconds: to encode all parameters.
        after_seconds: to decode one message of each, and to bring it into the parameters.

    Raises:
        SettingsError: one of them is below 0, or not finite.
    """

    payload: float
    before_seconds: float = 0.0
    after_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < math.inf:
                raise out_of_range(name, value, "a finite number, 0 or more", "measure the coding again")


@dataclass(frozen=True)
class Work:
    """What a step of training costs a worker beside forward and backward, whose time the cluster tells.

    Attributes:
        parameter_bytes: bytes of the trained parameters; gradients have as many.
        forward_share: share of forward in forward and backward.
        local_seconds: the optimizer's own step, over all parameters.
        combine_seconds: the weighted sum with one copy of all parameters that arrived.
        drag_seconds: by how much a step with an exchange behind it was longer than the model says, for each
            copy of the parameters that a worker sent: messages take processors and memory from the computing.
        reduce_seconds: the same of a step with an All-Reduce of all gradients.
        pieces: the gradients in the order in which backward makes them.
        codings: of averaging methods that encode, by name.

    Raises:
        SettingsError: a size, a share or a time that cannot be.
    """

    parameter_bytes: float
    forward_share: float = 1 / 3
    local_seconds: float = 0.0
    combine_seconds: float = 0.0
    drag_seconds: float = 0.0
    reduce_seconds: float = 0.0
    pieces: tuple[Piece, ...] = EVEN
    codings: Mapping[str, Coding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.parameter_bytes < math.inf:
            advice = "count 4 bytes a parameter in float32"
            raise out_of_range("parameter_bytes", self.parameter_bytes, "bytes, more than 0", advice)
        if not 0 <= self.forward_share < 1:
            advice = "a third is usual: backward takes twice as long"
            raise out_of_range("forward_share", self.forward_share, "0 or more, and below 1", advice)
        for name in ("local_seconds", "combine_seconds", "drag_seconds", "reduce_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise out_of_range(name, getattr(self, name), "seconds, 0 or more", "0 is no time at all")
        shares = [share for _, share in self.pieces]
        times = [time for time, _ in self.pieces]
        ascend = all(before <= after for before, after in pairwise([0.0, *times, 1.0]))
        if not (ascend and abs(sum(shares) - 1) <= 1e-6 and min(shares) >= 0):
            expected = "ascending shares of backward from 0 to 1, with shares of the bytes that sum to 1"
            raise out_of_range("pieces", self.pieces, expected, "leave it out for sixteen equal layers")


@dataclass(frozen=True)
class Measured:
    """A cluster with a model on it.

    Attributes:
        workers: number of workers, ``W``.
        cluster: compute times of forward and backward, and the links.
        work: the rest of a step.
        model: what was trained, in words.
        uncertainty: relative error of compute times and rates, by name (``"compute"``, ``"link"``,
            ``"inside"``): what the quartiles of the measurement were apart.
        about: the backend, the device, tables of messages by size: for people.

    Raises:
        SettingsError: the cluster describes other workers.
    """

    workers: int
    cluster: Cluster
    work: Work
    model: str = ""
    uncertainty: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise out_of_range("workers", self.workers, "1 or more", "count the processes")
        self.cluster.check(self.workers)

    @property
    def hosts(self) -> tuple[int, ...]:
        """The host of each worker."""
        return tuple(self.cluster.hosts if self.cluster.hosts is not None else range(self.workers))

    def stretched(self, compute: float = 1.0, wire: float = 1.0) -> Measured:
        """The same cluster, were computing and transfers so many times longer."""
        c = self.cluster

        def slower(text: str) -> str:
            bits = bits_per_second(text)
            return rate(bits and bits / wire)

        longer = replace(
            c,
            compute=c.law.times(compute).text,
            link=slower(c.link),
            inside=slower(c.inside),
            latency=c.latency * wire,
            inside_latency=c.inside_latency * wire,
        )
        return replace(self, cluster=longer)


def write(path: Path, measured: Measured) -> None:
    """Write it as JSON, aside and renamed."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(plain(measured), indent=1) + "\n", encoding="utf-8")
    aside.replace(path)


def plain(measured: Measured) -> dict[str, Any]:
    """What :func:`write` writes."""
    return {"version": VERSION, **asdict(measured)}


def read(path: Path) -> Measured:
    """Read what :func:`write` wrote.

    Raises:
        SettingsError: there is no such file, or it holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise not_a_cluster_file(str(path), str(error)) from error
    return known(content, str(path))


def known(content: Any, source: str) -> Measured:
    """What :func:`plain` told.

    Raises:
        SettingsError: it is something else; ``source`` says where it comes from.
    """
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise not_a_cluster_file(source, f"it has no version {VERSION}")
    try:
        return _measured({name: value for name, value in content.items() if name != "version"})
    except SettingsError as error:
        raise not_a_cluster_file(source, str(error)) from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise not_a_cluster_file(source, f"{type(error).__name__}: {error}") from error


def _measured(content: dict[str, Any]) -> Measured:
    cluster, work = dict(content.pop("cluster")), dict(content.pop("work"))
    cluster["slow"] = {int(worker): factor for worker, factor in cluster.get("slow", {}).items()}
    if cluster.get("hosts") is not None:
        cluster["hosts"] = tuple(cluster["hosts"])
    work["pieces"] = tuple((time, share) for time, share in work["pieces"])
    work["codings"] = {name: Coding(**coding) for name, coding in work["codings"].items()}
    content["workers"] = index(content["workers"])
    known = {each.name for each in fields(Measured)}
    if not content.keys() <= known:
        raise KeyError(sorted(content.keys() - known)[0])
    return Measured(cluster=Cluster(**cluster), work=Work(**work), **content)
