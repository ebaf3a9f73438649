"""Curves of simulations as pictures: loss, consensus distance and accuracy over steps, bytes and time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hf_decentral.bench import pictures
from hf_decentral.cli.simulate_lists import skew_name
from hf_decentral.cli.simulate_table import Group, Runs, above, grouped


class Axis(NamedTuple):
    """One quantity of a point.

    Attributes:
        word: for names of files.
        key: in a point.
        label: what is written beside the axis.
        shown: how many times the usual curve's largest value is shown; a run that diverges goes further.
    """

    word: str
    key: str
    label: str
    shown: float = 1.0


ACROSS = (
    Axis("steps", "step", "optimizer steps"),
    Axis("bytes", "sent_bytes", "bytes sent by a worker"),
    Axis("time", "seconds", "virtual seconds"),
)
UP = (
    Axis("loss", "loss", "validation loss of the mean model", 2.0),
    Axis("consensus", "consensus_distance", "consensus distance", 100.0),
    Axis("accuracy", "accuracy", "validation accuracy of the mean model"),
)
COLOURS = 10
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = ("", "o", "s", "^", "x")
_ROWS_OF_LEGEND = 27
_CROWDED = 8  # curves of which the bands are fainter
_LOGARITHMIC = 30  # ratio of the largest and the least value from which the axis is logarithmic
_FAR_APART = 5  # ratio of bytes from which their axis is logarithmic
_ROUNDING = 1e-5  # of a loss: so far below its optimum it may come
_DECADES = 6.0  # of a logarithmic axis that are shown below its largest value


class Curve(NamedTuple):
    """One line: ``[T]`` places, and the median, least and largest value over the seeds at each."""

    group: Group
    across: NDArray[np.float64]
    median: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def draw(runs: Runs, folder: Path) -> list[Path]:
    """Write a picture for each pair of quantities that the runs have; a panel for each skew and world size.

    Args:
        runs: as ``Run.as_dict()`` gives them.
        folder: where the pictures are put: ``loss_bytes.png`` and so on.

    Returns:
        The pictures.

    Raises:
        SettingsError: matplotlib is not installed, or a file cannot be written.
    """
    known = all(run.get("optimum") is not None for run in runs)
    groups = grouped([_above(run) for run in runs] if known else runs)
    styles = _styles(groups)
    written = []
    for up in UP:
        if known and up.key == "loss":
            up = up._replace(label="validation loss of the mean model above the optimum")
        for across in ACROSS:
            curves = [curve for group in groups if (curve := _curve(group, across.key, up.key)) is not None]
            if curves:
                path = folder / f"{up.word}_{across.word}.png"
                picture(curves, styles, across, up, path)
                written.append(path)
    return written


def _above(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run with the optimum taken from each loss."""
    return {**run, "points": [{**point, "loss": above(run, point["loss"])} for point in run["points"]]}


def _column(points: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [math.nan if point.get(key) is None else float(point[key]) for point in points]


def _curve(group: Group, across: str, up: str) -> Curve | None:
    """The curve over the seeds, as far as all of them came; None where there is nothing to show."""
    count = min(len(run["points"]) for run in group.runs)
    xs, ys = (np.array([_column(run["points"][:count], key) for run in group.runs]) for key in (across, up))
    if not np.isfinite(xs + ys).any():
        return None
    return Curve(group, np.median(xs, 0), np.median(ys, 0), ys.min(0), ys.max(0))


def common_topology(groups: Sequence[Group]) -> str | None:
    """The topology on which all run that do not bring their own; None where there are several."""
    ran = {(group.algorithm, group.topology) for group in groups}
    times = Counter(topology for _, topology in ran).most_common(2)
    several = len({algorithm for algorithm, _ in ran}) < len(ran)
    return times[0][0] if len(times) == 1 or (not several and times[0][1] > times[1][1]) else None


def _label(group: Group, common: str | None) -> str:
    """What tells a curve from the others of its panel."""
    return group.algorithm if group.topology == common else f"{group.algorithm}, {group.topology}"


def _styles(groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """How each label is drawn: a colour for the algorithm and a dash for the topology while they suffice."""
    common = common_topology(groups)
    algorithms = list(dict.fromkeys(group.algorithm for group in groups))
    topologies = list(dict.fromkeys(group.topology for group in groups))
    labels = list(dict.fromkeys(_label(group, common) for group in groups))
    places = {label: number for number, label in enumerate(labels)}
    if 1 < len(algorithms) <= COLOURS and len(topologies) <= len(DASHES):
        for group in groups:
            place = topologies.index(group.topology) * COLOURS + algorithms.index(group.algorithm)
            places[_label(group, common)] = place
    return {label: _style(place) for label, place in places.items()}


def _style(place: int) -> dict[str, Any]:
    rest, colour = divmod(place, COLOURS)
    marker = MARKERS[rest // len(DASHES) % len(MARKERS)]
    return {"color": f"C{colour}", "linestyle": DASHES[rest % len(DASHES)], "marker": marker}


def picture(
    curves: Sequence[Curve], styles: Mapping[str, dict[str, Any]], across: Axis, up: Axis, path: Path
) -> None:
    """Write one picture: a column of panels for each skew, a row for each number of workers.

    Args:
        curves: what is drawn.
        styles: how each label is drawn, the same in all pictures of a simulation.
        across: the quantity of the horizontal axis.
        up: that of the vertical one.
        path: the file.

    Raises:
        SettingsError: matplotlib is not installed, or the file cannot be written.
    """
    skews = list(dict.fromkeys(curve.group.skew for curve in curves))
    worlds = list(dict.fromkeys(curve.group.workers for curve in curves))
    common = common_topology([curve.group for curve in curves])
    columns = math.ceil(len(styles) / _ROWS_OF_LEGEND)
    high = max(3.4 * len(worlds) + 0.8, 0.19 * min(len(styles), _ROWS_OF_LEGEND) + 0.8)
    figure = pictures.figure(4.6 * len(skews) + 2.4 * columns, high)
    panels = figure.subplots(len(worlds), len(skews), squeeze=False, sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for curve in curves:
        axes = panels[worlds.index(curve.group.workers)][skews.index(curve.group.skew)]
        label = _label(curve.group, common)
        handles.setdefault(label, _line(axes, curve, styles[label], len(styles) > _CROWDED))
    for row, workers in enumerate(worlds):
        for column, skew in enumerate(skews):
            panels[row][column].set_title(f"{workers} workers, {_told(skew)}", fontsize=10)
        panels[row][0].set_ylabel(up.label)
    for axes in panels[-1]:
        axes.set_xlabel(across.label)
    _scale(panels[0][0], curves, across, up)
    _title(figure, curves, common)
    names = [label for label in styles if label in handles]
    lines = [handles[label] for label in names]
    figure.legend(lines, names, loc="outside right upper", ncols=columns, fontsize=8, handlelength=3)
    pictures.save(figure, path, "png")


def _told(skew: float | None) -> str:
    return "IID" if skew is None else f"Dirichlet {skew_name(skew)}"


def _title(figure: Any, curves: Sequence[Curve], common: str | None) -> None:
    runs = [run for curve in curves for run in curve.group.runs]
    seeds = len({run["seed"] for run in runs})
    band = f"\nline: median of {seeds} seeds, band: all of them" if seeds > 1 else ""
    what = f"{runs[0]['problem']}, {common}" if common else str(runs[0]["problem"])
    figure.suptitle(what + band, fontsize=10, x=0.01, horizontalalignment="left")


def _line(axes: Any, curve: Curve, style: Mapping[str, Any], crowded: bool) -> Any:
    """One curve with the band of its seeds."""
    every = max(1, len(curve.across) // 8)
    (line,) = axes.plot(curve.across, curve.median, linewidth=1.4, markersize=4, markevery=every, **style)
    if len(curve.group.runs) > 1:
        band = {"color": style["color"], "alpha": 0.06 if crowded else 0.15, "linewidth": 0}
        axes.fill_between(curve.across, curve.low, curve.high, **band)
    return line


def _scale(axes: Any, curves: Sequence[Curve], across: Axis, up: Axis) -> None:
    """Choose linear or logarithmic axes, which all panels share; a run that diverges leaves the picture."""
    xs = [curve.across[curve.across > 0] for curve in curves]
    ends = [x.max() for x in xs if x.size]
    if across.key == "sent_bytes" and ends and max(ends) > _FAR_APART * min(ends):
        axes.set_xscale("log", nonpositive="mask")
        axes.set_xlim(min(x.min() for x in xs if x.size), max(ends))
    values = [known for curve in curves if (known := curve.median[np.isfinite(curve.median)]).size]
    least, most = min(each.min() for each in values), max(each.max() for each in values)
    top = min(most, up.shown * float(np.median([each.max() for each in values])))
    positive = np.concatenate(values)
    positive = positive[(positive > 0) & (positive <= top)]
    if least >= -_ROUNDING * top and positive.size and top > _LOGARITHMIC * positive.min():
        axes.set_yscale("log", nonpositive="mask")  # a curve that comes to zero ends there
        axes.set_ylim(0.7 * max(positive.min(), top * 10**-_DECADES), 1.4 * top)
    elif top < most:
        axes.set_ylim(None, top)
