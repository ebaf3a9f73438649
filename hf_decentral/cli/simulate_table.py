"""Finished simulations for a person: the seeds of one setting together, a row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from rich.table import Table

from hf_decentral.cli.simulate_lists import skew_name

Runs = Sequence[Mapping[str, Any]]


class Group(NamedTuple):
    """Runs that differ in their seed only.

    Attributes:
        algorithm: its name.
        topology: the one that was asked for.
        workers: number of workers.
        skew: alpha of the Dirichlet distribution, or None.
        lr: the learning rate.
        runs: one for each seed, as ``Run.as_dict()`` gives them.
    """

    algorithm: str
    topology: str
    workers: int
    skew: float | None
    lr: float
    runs: Runs


def grouped(runs: Runs) -> list[Group]:
    """The runs by what they have in common, in the order of their first ones."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        found.setdefault(tuple(run[name] for name in Group._fields[:-1]), []).append(run)
    return [Group._make((*shared, each)) for shared, each in found.items()]


def last(run: Mapping[str, Any], key: str) -> float | None:
    """What the last point of a run's curve has."""
    value: float | None = run["points"][-1].get(key) if run["points"] else None
    return value


def above(run: Mapping[str, Any], loss: float | None) -> float | None:
    """How far a loss of that run is above the optimum, where that is known."""
    optimum = run.get("optimum")
    return None if loss is None or optimum is None else loss - float(optimum)


def spread(values: Sequence[float | None]) -> str:
    """Mean and sample standard deviation; a run that came to no finite number is told, not left out."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return f"not finite in {len(values) - len(known)} of {len(values)}"
    if len(known) == 1:
        return f"{known[0]:.4g}"
    return f"{fmean(known):.4g} ± {stdev(known):.2g}"


def middle(values: Sequence[float | None], scale: float, how: str) -> str:
    """The median, as text; nothing where no run has a value."""
    known = [value for value in values if value is not None]
    return f"{median(known) * scale:{how}}" if known else ""


def table(runs: Runs, title: str) -> Table:
    """A row for each setting: values of the last point; columns of which no run tells are left out."""
    groups = grouped(runs)
    skewed = len({group.skew for group in groups}) > 1
    accurate, timed = (any(last(run, key) is not None for run in runs) for key in ("accuracy", "seconds"))
    skipped = any(run["skipped"] for run in runs)
    known = all(run.get("optimum") is not None for run in runs)
    columns: tuple[tuple[str, bool, Callable[[Runs], str]], ...] = (
        ("loss", True, lambda runs: spread([run["loss"] for run in runs])),
        ("above optimum", known, lambda runs: spread([above(run, run["loss"]) for run in runs])),
        ("accuracy", accurate, lambda runs: spread([last(run, "accuracy") for run in runs])),
        ("consensus", True, lambda runs: middle([run["consensus_distance"] for run in runs], 1, ".3g")),
        ("sent, MB", True, lambda runs: middle([run["sent_bytes"] for run in runs], 1e-6, ",.4g")),
        ("virtual s", timed, lambda runs: middle([last(run, "seconds") for run in runs], 1, ".4g")),
        ("skipped", skipped, lambda runs: middle([run["skipped"] for run in runs], 1, ".3g")),
        ("step, ms", True, lambda runs: middle([run["step_seconds"] for run in runs], 1e3, ".3g")),
    )
    shown = [(heading, tell) for heading, wanted, tell in columns if wanted]
    made = Table(header_style="bold", title=title)
    made.add_column("algorithm", no_wrap=True)
    made.add_column("topology", overflow="fold")
    for heading in ("workers", *(["skew"] if skewed else []), "lr", *(heading for heading, _ in shown)):
        made.add_column(heading, justify="right")
    for group in groups:
        told = [str(group.workers), *([skew_name(group.skew)] if skewed else []), f"{group.lr:g}"]
        made.add_row(group.algorithm, group.topology, *told, *(tell(group.runs) for _, tell in shown))
    return made


def refusals(refused: Runs) -> Table:
    """A row for each reason, with what could not run for it."""
    made = Table("algorithm", "topology", header_style="bold", title="could not run")
    for heading in ("workers", "skew", "seed"):
        made.add_column(heading, justify="right")
    made.add_column("why", overflow="fold", ratio=1)
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in refused:
        found.setdefault(" ".join(str(each["reason"]).split()), []).append(each)
    for reason, those in found.items():
        told = [
            *([each[key] for each in those] for key in ("algorithm", "topology", "workers")),
            [skew_name(each["skew"]) for each in those],
            ["all" if each["seed"] is None else each["seed"] for each in those],
        ]
        made.add_row(*(", ".join(map(str, dict.fromkeys(values))) for values in told), reason)
    return made
