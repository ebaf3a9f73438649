"""A plan for people: the table, the advice, and the curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from hf_decentral.bench import pictures
from hf_decentral.cluster.measured import Measured
from hf_decentral.planner import Plan, Row
from hf_decentral.planner.advise import ALIKE
from hf_decentral.planner.assumed import per_host
from hf_decentral.planner.candidates import ALLREDUCE, AVERAGINGS, PLAIN
from hf_decentral.planner.scaling import scaling
from hf_decentral.planner.units import shown_link

SHOWN = 15
"""Rows of the table."""


def title(measured: Measured) -> str:
    """What was planned for, on one line."""
    sizes, c = per_host(measured), measured.cluster
    even = len(set(sizes)) == 1
    told = [
        f"{len(sizes)} x {sizes[0]} workers" if even else f"{measured.workers} workers on {len(sizes)} hosts",
        *([f"{shown_link(c.link)} between hosts"] if len(sizes) > 1 else []),
        *([f"{shown_link(c.inside)} inside"] if max(sizes) > 1 else []),
        f"{measured.work.parameter_bytes / 1e6:,.4g} MB of parameters",
        f"{1e3 * (c.law.mean + measured.work.local_seconds):.4g} ms a step alone",
    ]
    return (f"{measured.model}: " if measured.model else "") + ", ".join(told)


def few(plan: Plan) -> list[Row]:
    """The fastest rows, of a topology those with a codec only where it gains more than 2 %.

    All-Reduce and what is recommended are always among them.
    """
    advice = plan.recommendation
    always = {(ALLREDUCE, PLAIN), (advice.topology, advice.codec)}
    shown: list[Row] = []
    for name in dict.fromkeys(row.topology for row in plan.rows):
        own = sorted((row for row in plan.rows if row.topology == name), key=_loss)
        kept = own[:1]
        for row in own[1:]:
            if row.step_seconds * ALIKE < kept[-1].step_seconds or (row.topology, row.codec) in always:
                kept.append(row)
        shown += kept
    shown.sort(key=lambda row: ((row.topology, row.codec) not in always, row.step_seconds))
    return sorted(shown[:SHOWN], key=lambda row: row.step_seconds)


def _loss(row: Row) -> int:
    """How much a codec loses, as far as they have an order."""
    order = [*AVERAGINGS, row.codec]
    return order.index(row.codec)


def table(plan: Plan, batch_told: bool) -> Table:
    """One line a configuration, the fastest first; columns of which nothing is known are left out."""
    columns: list[tuple[str, Callable[[Row], str | None]]] = [
        ("step, ms", lambda row: _ms(row.step_seconds)),
        ("low to high", lambda row: f"{_ms(row.low)} to {_ms(row.high)}"),
        ("limit", lambda row: row.limited_by),
        ("x", lambda row: f"{row.speedup_over_allreduce:.2f}"),
        ("MB sent", lambda row: f"{row.sent_bytes / 1e6:,.4g}"),
        ("samples/s" if batch_told else "steps/s", lambda row: f"{row.throughput:,.4g}"),
        ("hours", lambda row: None if row.hours is None else f"{row.hours:,.4g}"),
        ("cost", lambda row: None if row.cost is None else f"{row.cost:,.5g}"),
        ("to agree", lambda row: "-" if row.rounds_to_consensus is None else f"{row.rounds_to_consensus:,}"),
        ("", lambda row: row.mark.partition(":")[0] or None),
    ]
    rows = few(plan)
    told = [column for column in columns if any(column[1](row) is not None for row in rows)]
    made = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    made.add_column("topology", no_wrap=True)
    made.add_column("codec", no_wrap=True)
    for heading, _ in told:
        made.add_column(heading, justify="left" if heading in ("limit", "") else "right", no_wrap=True)
    best = plan.recommendation
    for row in rows:
        style = "bold" if (row.topology, row.codec) == (best.topology, best.codec) else None
        made.add_row(row.topology, row.codec, *(text(row) or "" for _, text in told), style=style)
    return made


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.4g}" if seconds < 10 else f"{1e3 * seconds:,.0f}"


def draw(measured: Measured, path: Path) -> None:
    """Step time and efficiency over the number of workers, one curve a topology.

    Raises:
        SettingsError: matplotlib is not installed, or the file cannot be written.
    """
    figure = pictures.figure(10, 4.5)
    points = scaling(measured)
    left, right = figure.subplots(1, 2)
    names: Sequence[str] = list(dict.fromkeys(point.topology for point in points))
    for number, name in enumerate(names):
        own = [point for point in points if point.topology == name]
        workers = [point.workers for point in own]
        look = {"marker": "osv^D<>"[number % 7], "markersize": 4, "color": f"C{number % 10}", "label": name}
        left.plot(workers, [1e3 * point.step_seconds for point in own], **look)
        right.plot(workers, [point.efficiency for point in own], **look)
    left.set(yscale="log", xlabel="workers", ylabel="step, ms")
    right.set(ylim=(0, 1.05), xlabel="workers", ylabel="step of one worker alone / step")
    counts = sorted({point.workers for point in points})
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts[::2], [f"{count:,}" for count in counts[::2]])
        axes.grid(alpha=0.3)
    left.yaxis.set_major_formatter("{x:,.0f}")
    left.yaxis.set_minor_formatter("{x:,.0f}")
    right.legend(fontsize=8, loc="lower left")
    figure.suptitle(title(measured), fontsize=9)
    pictures.save(figure, path)
