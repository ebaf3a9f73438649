"""What was measured, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hf_decentral.cluster.measured import Measured
from hf_decentral.cluster.rates import bits_per_second

_PAGE = 124  # characters of a line where it goes to a file


def show(measured: Measured, disturbed: Sequence[str], path: Path) -> None:
    """Print the table, what disturbed the measurement, and where it was written."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=_PAGE, highlight=False)
    hosts = len(set(measured.hosts))
    title = f"{measured.workers} workers on {hosts} host{'s' if hosts > 1 else ''}, {measured.model}"
    made = Table("what", "measured", "of repeats, +-", title=title, header_style="bold")
    for row in rows(measured):
        made.add_row(*row)
    console.print(made)
    for each in disturbed:
        console.print(f"disturbed: {each}", markup=False, soft_wrap=True)
    console.print(f"written: {path}", markup=False, soft_wrap=True)


def rows(measured: Measured) -> Iterator[tuple[str, str, str]]:
    """What it is, how much, and how sure."""
    cluster, work = measured.cluster, measured.work
    sure = {name: f"{value:.1%}" for name, value in measured.uncertainty.items()}
    mean = cluster.law.mean
    yield "forward and backward", f"{_ms(mean)}, {cluster.law.kind}", sure["compute"]
    for worker, factor in cluster.slow.items():
        yield f"worker {worker}", f"{factor:.2f} times as long in every step", ""
    if cluster.correlation:
        yield "slow steps of two workers", f"correlated, {cluster.correlation:.2f}", ""
    yield "forward, share of it", f"{work.forward_share:.2f}", ""
    yield "optimizer", _ms(work.local_seconds), ""
    yield "parameters", f"{work.parameter_bytes / 1e6:.2f} MB", ""
    if measured.workers == 1:
        yield "links", "one worker: none to measure", ""
    elif len(set(measured.hosts)) == 1:
        yield "links between hosts", "one host: none to measure", ""
    else:
        turns = ", directions take turns" if cluster.half_duplex else ""
        yield "links between hosts", _link(cluster.link, cluster.latency) + turns, sure.get("link", "")
    if "inside" in sure:
        yield "links inside hosts", _link(cluster.inside, cluster.inside_latency), sure["inside"]
    if measured.workers > 1:
        yield "all-reduce over its formula", f"{cluster.collective:.2f}", ""
        yield "two exchanges at once over two", f"{cluster.crowding:.2f}", ""
        yield "rest of a step with one copy sent", _ms(work.drag_seconds), ""
        yield "rest of a step with an all-reduce", _ms(work.reduce_seconds), ""
    yield "to add one copy that arrived", _ms(work.combine_seconds), ""
    for name, coding in work.codings.items():
        times = f"encode {_ms(coding.before_seconds)}, decode and add {_ms(coding.after_seconds)}"
        yield f"{name}, {coding.payload:.2f} of the bytes", times, ""


def _link(rate: str, latency: float) -> str:
    bits = bits_per_second(rate)
    told = "" if bits is None else f"{bits / 1e6:,.4g} Mbit/s" if bits < 1e9 else f"{bits / 1e9:.4g} Gbit/s"
    return f"{told}, {_ms(latency)} a message"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
