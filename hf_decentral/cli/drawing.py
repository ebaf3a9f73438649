"""Rounds as text and as a picture."""

from __future__ import annotations

import math
from pathlib import Path

from hf_decentral.errors.cli import no_matplotlib, not_writable
from hf_decentral.topology import Round, Topology

_MOST_PANELS = 12


def text(round: Round) -> str:
    """One line: the groups that average, or who hears whom with which weight."""
    if round.idle:
        return "nobody talks"
    if round.groups is not None:
        alone = round.workers - sum(map(len, round.groups))
        found = " ".join("{" + ",".join(map(str, group)) + "}" for group in round.groups)
        return found + (f"  ({alone} alone)" if alone else "")
    rows = []
    for i, row in enumerate(round.rows):
        heard = ", ".join(f"{j}: {weight:.3g}" for j, weight in row if j != i)
        rows.append(f"{i} <- {heard}" if heard else f"{i} alone")
    return "\n".join(rows)


def picture(topology: Topology, path: Path) -> None:
    """Write one circle of workers for each round of a period (12 at most) as PNG.

    Raises:
        SettingsError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise no_matplotlib() from error
    rounds = topology.rounds()[:_MOST_PANELS]
    columns = min(4, len(rounds))
    lines = math.ceil(len(rounds) / columns)
    figure = Figure(figsize=(3 * columns, 3.2 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for step, axes in enumerate(panels):
        axes.set_axis_off()
        if step < len(rounds):
            axes.set_title(f"round {step}", fontsize=9)
            _circle(axes, rounds[step])
    figure.suptitle(f"{topology.name}, {topology.workers} workers")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise not_writable(path, str(error)) from error


def _circle(axes, round: Round) -> None:  # type: ignore[no-untyped-def]  # matplotlib may be missing
    angles = [math.pi / 2 - 2 * math.pi * i / round.workers for i in range(round.workers)]
    places = [(math.cos(a), math.sin(a)) for a in angles]
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    for i, row in enumerate(round.rows):
        for j, weight in row:
            both = any(k == i for k, _ in round.rows[j])
            if i == j or (both and i < j):
                continue  # a connection in both directions is drawn once
            style = {
                "arrowstyle": "-" if both else "->",
                "alpha": 0.3 + 0.7 * weight,
                "shrinkA": 6,
                "shrinkB": 6,
            }
            axes.annotate("", xy=places[i], xytext=places[j], arrowprops=style)
    axes.scatter(*zip(*places, strict=True), s=90, color="C0", zorder=3)
    if round.workers <= 64:
        for i, (x, y) in enumerate(places):
            axes.text(1.18 * x, 1.18 * y, str(i), ha="center", va="center", fontsize=7)
