"""A cluster from plain figures, for somebody who has not measured it yet; or another than was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hf_decentral.cluster.laws import Cluster, Law
from hf_decentral.cluster.measured import Coding, Measured, Work
from hf_decentral.errors import out_of_range
from hf_decentral.errors.planner import lacking, other_model, too_many_workers, uneven_hosts
from hf_decentral.planner.payloads import COMBINE_PASSES, STEP_PASSES

MEMORY_BYTES_PER_SECOND = 600e9
"""At which the optimizer's step goes through memory: an A40's."""

MOST_LOCAL = 0.2
"""Of a step, what the optimizer takes at most, however slow the memory."""

LATENCY, INSIDE_LATENCY = 30e-6, 5e-6
"""Seconds of a message between hosts and inside one."""

UNCERTAINTY: Mapping[str, float] = {"compute": 0.1, "link": 0.2, "inside": 0.3}
"""Relative errors of figures that nobody measured. A rate as it is sold is seldom reached."""

MOST_WORKERS = 4096
SAME_SIZE = 0.02
"""Relative difference in bytes up to which a model is the one that was measured."""


@dataclass(frozen=True)
class Figures:
    """What is known of a cluster and a model; None stands for what is not.

    Attributes:
        parameter_bytes: bytes of the parameters.
        hosts: number of hosts.
        workers_per_host: on each of them.
        link: rate between hosts, as :func:`hf_decentral.cluster.rates.bits_per_second` reads it.
        intra_link: rate inside a host.
        latency: seconds of a message between hosts.
        step_seconds: of forward, backward and the optimizer's step of one worker.
        step_cv: standard deviation of forward and backward, as a share of their mean.
        slow: factors on the compute time of some workers.
        dtype: of the parameters, a name of :data:`hf_decentral.planner.payloads.DTYPES`.
    """

    parameter_bytes: float | None = None
    hosts: int | None = None
    workers_per_host: int | None = None
    link: str | None = None
    intra_link: str | None = None
    latency: float | None = None
    step_seconds: float | None = None
    step_cv: float | None = None
    slow: Mapping[int, float] | None = None
    dtype: str | None = None


def assumed(figures: Figures, model: str = "") -> Measured:
    """A cluster of such figures.

    A step is split into the optimizer's and the rest: Adam reads and writes seven times the parameters'
    bytes, at 600 GB/s, and no more than a fifth of the step; a weighted sum with what arrived three times.
    Forward is a third of the rest, and its sixteen layers are alike.

    Args:
        figures: ``parameter_bytes`` and ``step_seconds`` at least, and with several hosts ``link``. Left out,
            there is one host with one worker, a PCIe bus inside, and a coefficient of variation of 0.05.
        model: what it is called.

    Raises:
        SettingsError: one that is needed is lacking, or cannot be meant.
    """
    hosts, each = _whole("--hosts", figures.hosts), _whole("--workers-per-host", figures.workers_per_host)
    _few(hosts * each)
    if figures.parameter_bytes is None:
        raise lacking("--model or --params", "for the bytes that travel")
    if figures.step_seconds is None:
        raise lacking("--step-ms", "for what an exchange can hide behind")
    if hosts > 1 and figures.link is None:
        raise lacking("--link", "for the bytes between hosts")
    local = min(
        MOST_LOCAL * figures.step_seconds, STEP_PASSES * figures.parameter_bytes / MEMORY_BYTES_PER_SECOND
    )
    cv = 0.05 if figures.step_cv is None else figures.step_cv
    cluster = Cluster(
        compute=spread(figures.step_seconds - local, cv),
        slow=dict(figures.slow or {}),
        link=figures.link or "none",
        latency=LATENCY if figures.latency is None else figures.latency,
        hosts=_hosts(hosts, each),
        inside=figures.intra_link or "160gbit",
        inside_latency=INSIDE_LATENCY,
    )
    combine = COMBINE_PASSES / STEP_PASSES * local
    work = Work(figures.parameter_bytes, local_seconds=local, combine_seconds=combine)
    about = {"assumed": True, "dtype": figures.dtype or "float32"}
    return Measured(hosts * each, cluster, work, model, dict(UNCERTAINTY), about)


def instead(measured: Measured, figures: Figures, flag: str = "--params") -> tuple[Measured, list[str]]:
    """The cluster that was measured, with some figures in the place of its own, and what was done, in words.

    What is given by hand has the uncertainty of an assumption, and so has a network of another size.

    Args:
        measured: the cluster.
        figures: what is to be otherwise.
        flag: what told the size of the model, for an error.

    Raises:
        SettingsError: a model of another size without ``step_seconds``, or figures that are lacking or cannot
            be meant.
    """
    notes: list[str] = []
    found = _other_model(measured, figures, flag)
    found = _other_times(found, figures)
    found = _other_hosts(found, figures, notes)
    c = found.cluster
    if figures.slow is not None:
        c = replace(c, slow=dict(figures.slow))
    c = replace(
        c,
        link=c.link if figures.link is None else figures.link,
        inside=c.inside if figures.intra_link is None else figures.intra_link,
        latency=c.latency if figures.latency is None else figures.latency,
    )
    typed = {"link": figures.link, "inside": figures.intra_link, "compute": figures.step_seconds}
    unsure = [name for name, value in typed.items() if value is not None]
    return _unsure(replace(found, cluster=c), unsure), notes


def spread(mean: float, cv: float) -> str:
    """The text of a lognormal law with this mean in seconds, whose standard deviation is ``cv`` of it."""
    if cv == 0:
        return f"{mean:.9g}"
    variance = math.log1p(cv * cv)
    return Law("lognormal", (mean * math.exp(-variance / 2), math.sqrt(variance))).text


def _other_model(measured: Measured, figures: Figures, flag: str) -> Measured:
    work, size = measured.work, figures.parameter_bytes
    if size is None:
        return measured
    ratio = size / work.parameter_bytes
    if abs(ratio - 1) <= SAME_SIZE:
        return measured
    if figures.step_seconds is None:
        raise other_model(flag, size / 1e6, work.parameter_bytes / 1e6)
    codings = {
        name: Coding(each.payload, ratio * each.before_seconds, ratio * each.after_seconds)
        for name, each in work.codings.items()
    }
    longer = replace(
        work,
        parameter_bytes=size,
        local_seconds=ratio * work.local_seconds,
        combine_seconds=ratio * work.combine_seconds,
        drag_seconds=ratio * work.drag_seconds,
        reduce_seconds=ratio * work.reduce_seconds,
        codings=codings,
    )
    return replace(measured, work=longer, model="")


def _other_times(measured: Measured, figures: Figures) -> Measured:
    law, work = measured.cluster.law, measured.work
    mean, step = law.mean, figures.step_seconds
    if step is not None:
        local = min(work.local_seconds, MOST_LOCAL * step)
        mean = step - local
        measured = replace(measured, work=replace(work, local_seconds=local))
    if figures.step_cv is not None:
        text = spread(mean, figures.step_cv)
    else:
        text = law.times(mean / law.mean).text
    return replace(measured, cluster=replace(measured.cluster, compute=text))


def _other_hosts(measured: Measured, figures: Figures, notes: list[str]) -> Measured:
    if figures.hosts is None and figures.workers_per_host is None:
        return measured
    sizes = per_host(measured)
    if figures.workers_per_host is None and len(set(sizes)) > 1:
        raise uneven_hosts(",".join(map(str, sizes)))
    hosts = _whole("--hosts", figures.hosts, len(sizes))
    each = _whole("--workers-per-host", figures.workers_per_host, sizes[0])
    workers = hosts * each
    _few(workers)
    if [each] * hosts == list(sizes):
        return measured
    if hosts > 1 and len(sizes) == 1 and figures.link is None:
        raise lacking("--link", "for the bytes between hosts, of which one was measured")
    if each > 1 and max(sizes) == 1 and figures.intra_link is None:
        raise lacking("--intra-link", "for the bytes inside a host, since one worker on each was measured")
    told = f"{len(sizes)} x {sizes[0]}" if len(set(sizes)) == 1 else ",".join(map(str, sizes))
    notes.append(f"{told} workers were measured (hosts x workers of each); {hosts} x {each} are extrapolated")
    slow = measured.cluster.slow
    kept = {worker: factor for worker, factor in slow.items() if worker < workers}
    if len(kept) < len(slow):
        notes.append(f"slow workers that are no longer there: {sorted(set(slow) - set(kept))}")
    cluster = replace(measured.cluster, hosts=_hosts(hosts, each), slow=kept)
    return _unsure(replace(measured, workers=workers, cluster=cluster), ("link", "inside"))


def per_host(measured: Measured) -> list[int]:
    """Workers of each host."""
    numbers = measured.hosts
    return [numbers.count(host) for host in dict.fromkeys(numbers)]


def _unsure(measured: Measured, names: Sequence[str]) -> Measured:
    wider = {name: max(UNCERTAINTY[name], measured.uncertainty.get(name, 0.0)) for name in names}
    return replace(measured, uncertainty={**measured.uncertainty, **wider})


def _hosts(hosts: int, each: int) -> tuple[int, ...]:
    return tuple(host for host in range(hosts) for _ in range(each))


def _whole(flag: str, value: int | None, usual: int = 1) -> int:
    if value is not None and value < 1:
        raise out_of_range(
            flag, value, "a whole number, 1 or more", "count the machines, and the workers on each"
        )
    return usual if value is None else value


def _few(workers: int) -> None:
    if workers > MOST_WORKERS:
        raise too_many_workers(workers, MOST_WORKERS)
