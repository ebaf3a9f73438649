"""``hf-decentral report``: finished runs side by side, as a table and as a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from hf_decentral.bench import pictures
from hf_decentral.cli.output import Json, console, write_json
from hf_decentral.errors.cli import no_metrics


class Finished(NamedTuple):
    """What a run left: ``summary.json``, and the lines of ``metrics.jsonl``."""

    label: str
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]


def read_run(folder: Path, label: str | None = None) -> Finished:
    """Read the folder of a finished run.

    Raises:
        DataError: it holds none, or its files are damaged.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        metrics = [json.loads(line) for line in lines]
        label = label or f"{summary['topology']}, {summary['optim']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise no_metrics(folder, f"{type(error).__name__}: {error}") from error
    return Finished(label, summary, metrics)


# What is told, key of summary.json, how it is shown.
ROWS = (
    ("topology", "topology", str),
    ("optimizer", "optim", str),
    ("workers", "workers", str),
    ("steps", "steps", "{:,}".format),
    ("tokens", "tokens", "{:,}".format),
    ("validation loss", "val_loss", "{:.4f}".format),
    ("milliseconds a step", "step_seconds", lambda value: f"{value * 1e3:.1f}"),
    ("MB sent by a worker", "sent_bytes", lambda value: f"{value / 1e6:,.1f}"),
    ("seconds waited for others", "waited_seconds", "{:.1f}".format),
    ("consensus distance", "consensus_distance", "{:.3g}".format),
)


def table(runs: Sequence[Finished]) -> Table:
    """One column a run; loss and distance are those of the last step, the step's time is the median."""
    made = Table("", *(run.label for run in runs), header_style="bold")
    for column in made.columns[1:]:
        column.justify = "right"
    for told, key, show in ROWS:
        values = [run.summary.get(key) for run in runs]
        made.add_row(told, *("" if value is None else show(value) for value in values))
    return made


def plot(runs: Sequence[Finished], path: Path) -> None:
    """Loss over tokens and over seconds, consensus distance over tokens; written as a picture.

    Raises:
        SettingsError: matplotlib is not installed, or the file cannot be written.
    """
    figure = pictures.figure(12, 4)
    by_tokens, by_seconds, distance = figure.subplots(1, 3)
    for number, run in enumerate(runs):
        colour = f"C{number}"
        for axes, key in ((by_tokens, "tokens"), (by_seconds, "seconds")):
            axes.plot(*_points(run, key, "train_loss"), color=colour, alpha=0.35, linewidth=1)
            axes.plot(*_points(run, key, "val_loss"), color=colour, marker="o", label=run.label)
        distance.plot(*_points(run, "tokens", "consensus_distance"), color=colour)
    by_tokens.ticklabel_format(axis="x", style="sci", scilimits=(0, 5))
    distance.ticklabel_format(axis="x", style="sci", scilimits=(0, 5))
    by_tokens.set(xlabel="tokens", ylabel="loss", title="thin: training, dots: validation")
    by_seconds.set(xlabel="seconds of training", ylabel="loss")
    distance.set(xlabel="tokens", ylabel="consensus distance", ylim=(0, None))
    by_tokens.legend()
    pictures.save(figure, path)


def _points(run: Finished, x: str, y: str) -> tuple[list[float], list[float]]:
    found = [(line[x], line[y]) for line in run.metrics if x in line and line.get(y) is not None]
    return [point[0] for point in found], [point[1] for point in found]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def report(
        folders: Annotated[list[Path], typer.Argument(help="Output folders of finished runs.")],
        png: Annotated[Path | None, typer.Option(help="Draw the runs into this picture.")] = None,
        json: Json = None,
    ) -> None:
        """Compare finished runs of scripts/pretrain_gpt2.py."""
        runs = [read_run(folder) for folder in folders]
        console.print(table(runs))
        if png is not None:
            plot(runs, png)
        write_json(json, {"runs": [run.summary for run in runs]})
