"""``hf-decentral plan``: which configuration pays on a cluster, and whether any does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from hf_decentral.bench import report
from hf_decentral.cli import plan_table, verbs
from hf_decentral.cli.output import console, write_json
from hf_decentral.cli.plan_flags import Flags
from hf_decentral.errors.planner import already_there
from hf_decentral.planner import Plan, plan
from hf_decentral.planner.advise import called
from hf_decentral.planner.launch_file import launch_file

_TEXT = """Predict the step time of All-Reduce and of decentralized configurations, and recommend one or none.

For a cluster that was calibrated:

hf-decentral plan --cluster cluster.json --steps 600000

For one that is only thought of:

hf-decentral plan --model gpt2 --hosts 4 --workers-per-host 4 --link 25gbit --intra-link pcie --step-ms 245

Low and high are the step if computing and links are off by their uncertainty. The column x is how many times
as fast as All-Reduce, `to agree` the steps that make differences between workers a million times smaller. A
row that is marked is fast and poor, and not recommended while there is another.
"""
_PAGE = 140  # characters of a line where it goes to a file


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verbs.add(app, "plan", Flags, run, _TEXT)


def run(flags: Flags) -> None:
    """Plan, and tell what came out.

    Raises:
        SettingsError: something that cannot be meant, or a file that cannot be written.
    """
    flags.check()
    _check_files(flags)
    measured, notes = flags.measured()
    found = plan(
        measured,
        topologies=flags.topologies,
        averagings=flags.averagings,
        steps=flags.steps,
        global_batch=flags.global_batch,
        price=flags.price,
    )
    text = None if flags.write is None else launch_file(measured, found.recommendation)
    page = console if console.is_terminal else Console(width=max(_PAGE, console.width))
    page.print(plan_table.title(measured), markup=False, soft_wrap=True)
    page.print(plan_table.table(found, flags.global_batch is not None))
    _tell(page, found, notes)
    rows = [asdict(row) for row in found.rows]
    write_json(flags.json, {"rows": rows, "recommendation": asdict(found.recommendation)})
    if flags.png is not None:
        plan_table.draw(measured, flags.png)
    if flags.write is not None and text is not None:
        report.write_text(flags.write, text)
        page.print(f"accelerate launch --config_file {flags.write} ...", markup=False, soft_wrap=True)


def _check_files(flags: Flags) -> None:
    """See that nothing is lost, before anything is computed."""
    if flags.write is not None and flags.write.is_file() and not flags.force:
        raise already_there(flags.write)
    paths: tuple[Path | None, ...] = (flags.json, flags.png, flags.write)
    for path in paths:
        if path is not None:
            report.check_writable(path)


def _tell(page: Console, found: Plan, notes: list[str]) -> None:
    advice = found.recommendation
    left = len(found.rows) - len(plan_table.few(found))
    told = [f"recommended: {advice.why}"]
    told += [f"{called(row)}: {row.mark}" for row in plan_table.few(found) if row.mark]
    told += [f"left out: {name}: {reason}" for name, reason in found.left_out.items()]
    told += [f"note: {note}" for note in notes]
    if left > 0:
        told.append(f"note: {left} slower configurations are not shown; --json has all")
    page.print("\n".join(told), markup=False, soft_wrap=True)
