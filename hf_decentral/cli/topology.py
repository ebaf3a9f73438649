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
from hf_decentral.topology.shards import sharded
from hf_decentral.topology.traffic import sent

_SHOW = """The rounds of a topology, how fast it mixes, what it sends, and which step it allows.

For example: hf-decentral topology show aer -n 16 --hosts 4 --png aer.png

{words}

{step}
""".format(  # a paragraph is one line, since the terminal breaks it
    words="In a round, {0,1} take their mean, 0 <-> 2: 0.67 take 0.67 of each other, and 0 <- 1: 0.5 says "
    "that 0 hears 1 with weight 0.5. The second eigenvalue is what is left of differences after a period.",
    step="The largest stable step compares the learning rates that a quadratic bears, All-Reduce in the same "
    "order (adapt while combining) being 1: a ring bears only 2/3 of its rate.",
)

_MOST_WORKERS = 128  # the spectrum of larger matrices takes minutes


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
    """What is printed, as plain keys.

    A round is ``{"groups": ...}`` where it is a mean over each of them, else ``{"rows": ...}``: for each
    worker the ``[sender, weight]`` pairs that it sums.
    """
    rounds, shards = topology.rounds(), sharded(topology)
    return {
        "topology": topology.name,
        "workers": topology.workers,
        "period": topology.period,
        "rounds": [
            {"rows": round.rows} if round.groups is None else {"groups": round.groups} for round in rounds
        ],
        "sent_multiple": mean(mean(sent(round, shards=shards.get(round.key))) for round in rounds),
        "exact_after": numbers and numbers.exact,
        "second_eigenvalue": numbers and numbers.second_eigenvalue,
        "contraction": numbers and numbers.contraction,
        "largest_stable_step": numbers and numbers.largest_stable_step,
    }


def _print(topology: Topology, found: dict[str, object], numbers: Spectrum | None) -> None:
    rounds = Table("round", "averages", "sent", title=f"{topology.name}, {topology.workers} workers")
    shards = sharded(topology)
    for step, round in enumerate(topology.rounds()):
        multiple = mean(sent(round, shards=shards.get(round.key)))
        rounds.add_row(str(step), drawing.text(round), f"{multiple:.3g} P")
    console.print(rounds)
    told = [
        f"period: {topology.period}",
        f"sent per step and worker: {found['sent_multiple']:.3g} P (P: parameters)",
    ]
    if numbers is None:
        told.append(f"how fast it mixes is computed for up to {_MOST_WORKERS} workers")
    elif numbers.exact:
        told.append(f"exact mean after: {numbers.exact}")
    else:
        told.append(f"second eigenvalue of a period: {numbers.second_eigenvalue:.4g}")
        told.append(f"differences left after a period, at worst: {numbers.contraction:.4g}")
    if numbers is not None and topology.workers > 1:
        told.append(f"largest stable step relative to All-Reduce: {numbers.largest_stable_step:.3g}")
    if topology.least:
        told.append(f"only in steps in which the consensus distance is not below {topology.least:g}")
    console.print("\n".join(told), soft_wrap=True)


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

    @group.command(help=_SHOW)
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
        topology = build(name, workers, hosts_of(hosts, workers) if workers > 0 else None)
        numbers = spectrum(topology) if workers <= _MOST_WORKERS else None
        found = facts(topology, numbers)
        _print(topology, found, numbers)
        if png is not None:
            drawing.picture(topology, png)
        write_json(json, found)
