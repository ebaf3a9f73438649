"""``hf-decentral topology``: see who averages with whom before a run is started."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from rich.table import Table

from hf_decentral.cli import drawing, matrices, speed
from hf_decentral.cli.output import Json, console, write_json
from hf_decentral.errors import out_of_range
from hf_decentral.errors.cli import name_or_matrix
from hf_decentral.topology import TABLE, Hosts, Spectrum, Topology, build, spectrum
from hf_decentral.topology.shards import sharded
from hf_decentral.topology.spectrum import left_of_a_round
from hf_decentral.topology.traffic import sent

_SHOW = """The rounds of a topology, how fast it mixes, what it sends, and which step it allows.

For example: hf-decentral topology show aer -n 16 --hosts 4 --png aer.png

{file}

{words}

{step}
""".format(  # a paragraph is one line, since the terminal breaks it
    file="--matrix shows weights of your own: a square matrix, or several of them, in a .json, .csv, .npy or "
    ".pt file; or the Metropolis-Hastings weights of a graph, two workers a line in an .edgelist file.",
    words="In a round, {0,1} take their mean, 0 <-> 2: 0.67 take 0.67 of each other, and 0 <- 1: 0.5 says "
    "that 0 hears 1 with weight 0.5. The second eigenvalue is what is left of differences after a period, "
    "the spectral gap what is not.",
    step="The largest stable step compares the learning rates that a quadratic bears, All-Reduce in the same "
    "order (adapt while combining) being 1: a ring bears only 2/3 of its rate.",
)

_MOST_WORKERS = 128  # the spectrum of larger matrices takes minutes
_FIRST = 8  # rounds that are printed where ever new ones come


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
        "spectral_gap": numbers and 1 - numbers.second_eigenvalue,
        "expected_contraction": left_of_a_round(topology) if topology.repeated() is None else None,
        "contraction": numbers and numbers.contraction,
        "largest_stable_step": numbers and numbers.largest_stable_step,
    }


def _print(topology: Topology, found: dict[str, object], numbers: Spectrum | None) -> None:
    rounds = Table("round", "averages", "sent", title=f"{topology.name}, {topology.workers} workers")
    shards = sharded(topology)
    repeats = topology.repeated() is not None
    for step, round in enumerate(topology.rounds(None if repeats else _FIRST)):
        multiple = mean(sent(round, shards=shards.get(round.key)))
        rounds.add_row(str(step), drawing.text(round), f"{multiple:.3g} P")
    console.print(rounds)
    told = [
        f"period: {topology.period}" if repeats else "period: none, ever new rounds come",
        f"sent per step and worker: {found['sent_multiple']:.3g} P (P: parameters)",
    ]
    if not repeats:
        left = found["expected_contraction"]
        told.append(f"squared differences left after a round, mean of 64 rounds: {left:.4g}")
    if numbers is None:
        told.append(f"how fast it mixes is computed for up to {_MOST_WORKERS} workers")
    elif numbers.exact:
        told.append(f"exact mean after: {numbers.exact}")
    elif repeats:  # of 64 rounds that were drawn the eigenvalue is an accident
        told.append(
            f"second eigenvalue of a period: {numbers.second_eigenvalue:.4g} "
            f"(spectral gap {1 - numbers.second_eigenvalue:.4g})"
        )
        told.append(f"differences left after a period, at worst: {numbers.contraction:.4g}")
    if numbers is not None and topology.workers > 1:
        told.append(f"largest stable step relative to All-Reduce: {numbers.largest_stable_step:.3g}")
    if topology.least:
        told.append(f"only in steps in which the consensus distance is not below {topology.least:g}")
    console.print("\n".join(told), soft_wrap=True)


def _asked(name: str | None, matrix: Path | None, workers: int | None, hosts: str | None) -> Topology:
    if (name is None) == (matrix is None):
        raise name_or_matrix(name)
    if matrix is not None:
        if hosts is not None:
            raise out_of_range("--hosts", hosts, "nothing beside --matrix", "weights do not ask for hosts")
        return matrices.read(matrix, workers)
    count = 8 if workers is None else workers
    return build(str(name), count, hosts_of(hosts, count) if count > 0 else None)


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
        name: Annotated[
            str | None,
            typer.Argument(help="A name that `hf-decentral topology list` shows.", show_default=False),
        ] = None,
        workers: Annotated[
            int | None, typer.Option("-n", "--workers", help="Number of workers.", show_default="8")
        ] = None,
        hosts: Annotated[
            str | None,
            typer.Option(help="Number of hosts, or the workers of each: 4,4,2. Left out: one worker a host."),
        ] = None,
        matrix: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Weights or edges of your own, in place of NAME.")
        ] = None,
        png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the rounds there.")] = None,
        json: Json = None,
    ) -> None:
        topology = _asked(name, matrix, workers, hosts)
        numbers = spectrum(topology) if topology.workers <= _MOST_WORKERS else None
        found = facts(topology, numbers)
        _print(topology, found, numbers)
        if png is not None:
            drawing.picture(topology, png)
        write_json(json, found)

    speed.register(group)
