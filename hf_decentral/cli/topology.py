"""``hf-decentral topology``: see who averages with whom before a run is started."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from rich.table import Table

from hf_decentral.cli import drawing
from hf_decentral.cli.output import Json, console, write_json
from hf_decentral.errors import out_of_range
from hf_decentral.topology import TABLE, Hosts, Spectrum, Topology, build, spectrum
from hf_decentral.topology.traffic import sent

_MOST_WORKERS = 256  # eigenvalues of larger matrices take minutes


def hosts_of(given: str | None, workers: int) -> Hosts:
    """``"2"`` is two hosts of (nearly) equal size, ``"4,4,2"`` the workers of each.

    Raises:
        SettingsError: not such a list, or for another number of workers.
    """
    if given is None:
        return None
    expected = f"a number of hosts up to {workers}, or the workers of each as in 4,4,2, {workers} in all"
    try:
        sizes = [int(part) for part in given.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) == 1 and 1 <= sizes[0] <= workers:
        return [worker * sizes[0] // workers for worker in range(workers)]
    if len(sizes) < 2 or min(sizes) < 1 or sum(sizes) != workers:
        raise out_of_range("--hosts", given, expected, "leave it out for one worker a host")
    return [host for host, size in enumerate(sizes) for _ in range(size)]


def facts(topology: Topology, numbers: Spectrum | None) -> dict[str, object]:
    """What is printed, as plain keys."""
    rounds = topology.rounds()
    per_round = [sent(round) for round in rounds]
    return {
        "topology": topology.name,
        "workers": topology.workers,
        "period": topology.period,
        "rounds": [[[list(pair) for pair in row] for row in round.rows] for round in rounds],
        "sent_multiple": mean(map(mean, per_round)),
        "exact_after": numbers and numbers.exact,
        "second_eigenvalue": numbers and numbers.second_eigenvalue,
        "contraction": numbers and numbers.contraction,
        "largest_stable_step": numbers and numbers.largest_stable_step,
    }


def _print(topology: Topology, found: dict[str, object], numbers: Spectrum | None) -> None:
    rounds = Table(
        "round", "averages", "sent, x parameters", title=f"{topology.name}, {topology.workers} workers"
    )
    for step, round in enumerate(topology.rounds()):
        rounds.add_row(str(step), drawing.text(round), f"{mean(sent(round)):.3g}")
    console.print(rounds)
    console.print(
        f"period: {topology.period} rounds; sent per step and worker: {found['sent_multiple']:.3g} x parameters"
    )
    if numbers is None:
        console.print(f"(eigenvalues are shown up to {_MOST_WORKERS} workers)")
        return
    if numbers.exact is None:
        console.print(
            f"second eigenvalue of a period: {numbers.second_eigenvalue:.4g} "
            f"(differences shrink to {numbers.contraction:.4g} at worst)"
        )
    else:
        console.print(f"exact mean after {numbers.exact} rounds")
    console.print(
        f"largest stable step, times curvature: {numbers.largest_stable_step:.3g} while combining "
        "(complete graph: 1; All-Reduce: 2)"
    )


def register(app: typer.Typer) -> None:
    """Add the verb."""
    group = typer.Typer(
        help="See who averages with whom, and what that costs and allows.", no_args_is_help=True
    )
    app.add_typer(group, name="topology")

    @group.command("list")
    def _list(json: Json = None) -> None:
        """All topologies, one line each."""
        table = Table("name", "what it is")
        for name, entry in sorted(TABLE.items()):
            table.add_row(name, entry.summary)
        console.print(table)
        write_json(json, {"topologies": {name: entry.summary for name, entry in sorted(TABLE.items())}})

    @group.command()
    def show(
        name: Annotated[str, typer.Argument(help="A name that `hf-decentral topology list` shows.")],
        workers: Annotated[int, typer.Option("-n", "--workers", help="Number of workers.")] = 8,
        hosts: Annotated[
            str | None,
            typer.Option(help="Number of hosts, or the workers of each: 4,4,2. Left out: one worker a host."),
        ] = None,
        png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the rounds there.")] = None,
        json: Json = None,
    ) -> None:
        """The rounds of a topology, how fast it mixes, what it sends, and which step it allows.

        For example: hf-decentral topology show aer -n 16 --hosts 4 --png aer.png
        """
        topology = build(name, workers, hosts_of(hosts, workers) if workers > 0 else None)
        numbers = spectrum(topology) if workers <= _MOST_WORKERS else None
        found = facts(topology, numbers)
        _print(topology, found, numbers)
        if png is not None:
            drawing.picture(topology, png)
        write_json(json, found)
