"""Rounds as text and as a picture."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from statistics import fmean

from hf_decentral.bench import pictures
from hf_decentral.topology import Round, Topology

_MOST_PANELS = 12
_ALL_EDGES = 16  # members up to which a group is drawn with the line of every pair

Point = tuple[float, float]
Segment = tuple[Point, Point]


def text(round: Round) -> str:
    """A round in words: ``{0,1}`` averages, ``0 <-> 2: 0.67`` trades, ``i <- i-1: 0.5`` hears."""
    if round.idle:
        return "nobody talks"
    shifted = _shifts(round) if round.groups is None else None
    if shifted is not None:
        return "each i <- " + ", ".join(f"i{shift:+d}: {weight:.3g}" for shift, weight in shifted)
    groups = round.groups or ()
    grouped = {worker for group in groups for worker in group}
    told = ["{" + ",".join(map(str, group)) + "}" for group in groups]
    alone = 0
    for i, row in enumerate(round.rows):
        heard = round.senders(i)
        if i in grouped:
            continue
        if not heard:
            alone += 1
        elif len(heard) > 1 or round.senders(heard[0]) != (i,):
            told.append(f"{i} <- " + ", ".join(f"{j}: {weight:.3g}" for j, weight in row if j != i))
        elif i < heard[0]:
            weight = dict(row)[heard[0]]
            told.append(f"{{{i},{heard[0]}}}" if weight == 0.5 else f"{i} <-> {heard[0]}: {weight:.3g}")
    return "  ".join(told) + (f"  ({alone} alone)" if alone else "")


def _shifts(round: Round) -> list[tuple[int, float]] | None:
    """``(shift, weight)`` where every worker hears the ones that far away on the circle, else None."""
    found: set[tuple[tuple[int, float], ...]] = set()
    for i, row in enumerate(round.rows):
        apart = [((j - i) % round.workers, weight) for j, weight in row if j != i]
        found.add(tuple(sorted((s - round.workers if 2 * s > round.workers else s, w) for s, w in apart)))
    return list(found.pop()) if len(found) == 1 else None


def picture(topology: Topology, path: Path) -> None:
    """Write one circle of workers for each round of a period (12 at most) as PNG.

    Raises:
        SettingsError: matplotlib is not installed, or the file cannot be written.
    """
    rounds = topology.rounds()[:_MOST_PANELS]
    columns = min(4, len(rounds))
    lines = math.ceil(len(rounds) / columns)
    figure = pictures.figure(3 * columns, 3.2 * lines)
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for step, axes in enumerate(panels):
        axes.set_axis_off()
        if step < len(rounds):
            axes.set_title(f"round {step}", fontsize=9)
            _circle(axes, rounds[step])
    figure.suptitle(f"{topology.name}, {topology.workers} workers")
    pictures.save(figure, path)


def _circle(axes, round: Round) -> None:  # type: ignore[no-untyped-def]  # matplotlib may be missing
    angles = [math.pi / 2 - 2 * math.pi * i / round.workers for i in range(round.workers)]
    places = [(math.cos(a), math.sin(a)) for a in angles]
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    lines, arrows = _connections(round, places)
    if lines:  # one curve with gaps: thousands of lines would take minutes
        xs, ys = ([c for a, b in lines for c in (a[axis], b[axis], math.nan)] for axis in (0, 1))
        axes.plot(xs, ys, color="0.4", linewidth=0.8, zorder=1)
    if arrows:  # each from a tenth of the way to nine tenths, clear of the two workers
        tails = [[a[axis] + 0.1 * (b[axis] - a[axis]) for a, b in arrows] for axis in (0, 1)]
        moves = [[0.8 * (b[axis] - a[axis]) for a, b in arrows] for axis in (0, 1)]
        axes.quiver(*tails, *moves, color="0.4", angles="xy", scale_units="xy", scale=1, width=0.006)
    few = round.workers <= 64
    axes.scatter(*zip(*places, strict=True), s=90 if few else 8, color="C0", zorder=3)
    if few:
        for i, (x, y) in enumerate(places):
            axes.text(1.18 * x, 1.18 * y, str(i), ha="center", va="center", fontsize=7)


def _connections(round: Round, places: list[Point]) -> tuple[list[Segment], list[Segment]]:
    """Lines where both hear each other, arrows to the one who hears; a large group meets in its middle."""
    lines: list[Segment] = []
    arrows: list[Segment] = []
    for group in round.groups or ():
        if len(group) <= _ALL_EDGES:
            lines += itertools.combinations([places[i] for i in group], 2)
        else:
            middle = (fmean(places[i][0] for i in group), fmean(places[i][1] for i in group))
            lines += [(places[i], middle) for i in group]
    if round.groups is None:
        for i in range(round.workers):
            for j in round.senders(i):
                if i not in round.senders(j):
                    arrows.append((places[j], places[i]))
                elif i < j:
                    lines.append((places[i], places[j]))
    return lines, arrows
