"""``hf-decentral topology speed``: how many rounds bring the workers together, topology by topology."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.progress import track
from rich.table import Table

from hf_decentral.bench import pictures
from hf_decentral.cli.output import Json, console, errors, write_json
from hf_decentral.cli.simulate_lists import at_least, values
from hf_decentral.errors import TopologyError
from hf_decentral.topology import build, names
from hf_decentral.topology.speed import MOST_ROUNDS, speed

FACTOR = 1e6
COMPUTED = "*"

_SPEED = """Rounds that make the consensus distance a million times smaller, from random numbers.

For example: hf-decentral topology speed -n 8,64 --png speed.png ring 'base_graph(2)'

{words}
""".format(  # a paragraph is one line, since the terminal breaks it
    words="Exact says that nothing of the distance is left. Where rounds are redrawn it is the median of "
    "five draws; what takes long on a circle is computed from eigenvalues. Seeds are 0.",
)


def measure(topology: str, workers: int) -> dict[str, Any]:
    """One cell of the table, as plain keys; ``reason`` says why there are no rounds."""
    row: dict[str, Any] = {"topology": topology, "workers": workers, "rounds": None, "exact_after": None}
    try:
        found = speed(build(topology, workers), FACTOR)
    except TopologyError as error:
        return {**row, "how": None, "reason": str(error).split("\n  ")[1]}
    reason = f"more than {MOST_ROUNDS:,} rounds" if found.rounds is None else None
    return {
        **row,
        "rounds": found.rounds,
        "exact_after": found.exact_after,
        "how": found.how,
        "reason": reason,
    }


def table(rows: Sequence[dict[str, Any]], workers: Sequence[int]) -> Table:
    """One line a topology, one column a number of workers."""
    made = Table(
        "topology", *(f"n={count}" for count in workers), "how", box=box.SIMPLE, padding=(0, 1, 0, 0)
    )
    for column in made.columns:
        column.no_wrap = True
    for column in made.columns[1:-1]:
        column.justify = "right"
    for name in dict.fromkeys(row["topology"] for row in rows):
        own = [row for row in rows if row["topology"] == name]
        hows = dict.fromkeys(row["how"] for row in own if row["how"] not in (None, "eigenvalues"))
        made.add_row(name, *map(_cell, own), ", ".join(hows))
    return made


def _cell(row: dict[str, Any]) -> str:
    if row["rounds"] is None:
        return "-"
    if row["exact_after"] is not None:
        return f"exact {row['exact_after']}"
    return f"{row['rounds']:,}" + (COMPUTED if row["how"] == "eigenvalues" else "")


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Rounds over workers, both logarithmic, one line a topology; exact ones are dashed.

    Raises:
        SettingsError: matplotlib is not installed, or the file cannot be written.
    """
    figure = pictures.figure(8, 5)
    axes = figure.subplots()
    for number, name in enumerate(dict.fromkeys(row["topology"] for row in rows)):
        own = [row for row in rows if row["topology"] == name and row["rounds"]]
        exact = bool(own) and all(row["exact_after"] is not None for row in own)
        axes.plot(
            [row["workers"] for row in own],
            [row["rounds"] for row in own],
            linestyle="--" if exact else "-",
            marker="osv^D"[number // 10 % 5],
            color=f"C{number % 10}",
            label=name + (" (exact)" if exact else ""),
        )
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="rounds to a millionth of the distance")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(figure, path)


def register(group: typer.Typer) -> None:
    """Add the verb to ``hf-decentral topology``."""

    @group.command("speed", help=_SPEED)
    def _speed(
        topologies: Annotated[
            list[str] | None,
            typer.Argument(metavar="[NAME]...", help="Which topologies; left out, all.", show_default=False),
        ] = None,
        workers: Annotated[
            str, typer.Option("-n", "--workers", help="Numbers of workers.")
        ] = "8,16,25,64,1000",
        png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the table there.")] = None,
        json: Json = None,
    ) -> None:
        expected, advice = "numbers of workers, 1 or more, between commas", "write for example 8,16,25"
        counts = values("--workers", workers, at_least(1), expected, advice)
        asked = topologies or names()
        for name in asked:
            build(name, 1)  # a misspelt name is told before anything is run
        cells = [(name, count) for name in asked for count in counts]
        shown = track(cells, "rounds", console=errors, transient=True, disable=not errors.is_terminal)
        rows = [measure(name, count) for name, count in shown]
        console.print(table(rows, counts))
        if any(row["how"] == "eigenvalues" for row in rows):
            console.print(f"{COMPUTED} computed from eigenvalues, not run")
        for row in rows:
            if row["reason"]:
                console.print(f"{row['topology']}, n = {row['workers']}: {row['reason']}", soft_wrap=True)
        if png is not None:
            plot(rows, png)
        write_json(json, {"factor": FACTOR, "speeds": rows})
