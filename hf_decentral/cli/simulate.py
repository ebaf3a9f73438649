"""``hf-decentral simulate``: algorithms beside each other, with up to thousands of workers in one process."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console

from hf_decentral.bench import report
from hf_decentral.cli import curves, verbs
from hf_decentral.cli.output import console, errors, write_json
from hf_decentral.cli.simulate_settings import Settings
from hf_decentral.cli.simulate_store import Store, plain
from hf_decentral.cli.simulate_table import refusals, table
from hf_decentral.errors.simulate_cli import nothing_ran

_TEXT = """Compare algorithms: every one on every topology, for every number of workers, skew and seed.

All workers of a run live in this process and train by the code that trains on real machines. What comes out
is a table, plots in FOLDER (loss, consensus distance and accuracy over steps, over the bytes that a worker
sends, and over virtual time where a clock runs) and, with --json, all curves as numbers. In the table a loss
is the mean over the seeds and their standard deviation, other values are medians; in a plot the line is the
median and the band has all seeds.

Two algorithms on three topologies, 3 seeds each:

hf-decentral simulate --algorithms dadam,accumadam --topology ring,aer,complete --workers 8,64 --seeds 3

All algorithms beside each other, samples dealt out evenly and by label, a panel each:

hf-decentral simulate --problem mnist-mlp --algorithms all --workers 16 --seeds 3 --skew iid,0.1

Loss over time on slow links, one worker twice as slow as the others:

hf-decentral simulate --topology ring,complete --compute 'exponential(0.05, 0.05)' --bandwidth 200mbit
--latency 0.0001 --slow-worker 3=2

A run is kept in FOLDER when it ends, and a long one on its way too: after Ctrl-C, the same command with
--resume goes on where it was. What cannot run is told with the reason and does not stop the others; if
nothing could run the exit code is 2.
"""
_WHERE = ("out", "json", "resume")  # flags that say nothing of the runs
_PAGE = 160  # characters of a line where it goes to a file


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verbs.add(app, "simulate", Settings, run, _TEXT)


def run(settings: Settings) -> None:
    """Make all runs of a simulation and tell what came of them.

    Raises:
        SettingsError: something that cannot be meant, or a file that cannot be written.
        DataError: the problem has no data.
        LaunchError: nothing could run.
    """
    settings.check()
    store = Store(settings.out)
    if settings.json is not None:
        report.check_writable(settings.json)
    from hf_decentral.cli.simulate_runs import Runner  # here: it brings the Trainer's libraries

    try:
        runs, refused = Runner(settings, store).run()
    except KeyboardInterrupt:
        told = f"stopped; what has ended is kept in {settings.out}: the same command with --resume goes on"
        errors.print(told, markup=False, soft_wrap=True)
        raise
    typed = {name: value for name, value in asdict(settings).items() if name not in _WHERE}
    write_json(settings.json, plain({"runs": runs, "refused": refused, "settings": typed}))
    _tell(settings, runs, refused)
    if not runs:
        raise nothing_ran(len(refused))


def _tell(settings: Settings, runs: list[dict[str, Any]], refused: list[dict[str, Any]]) -> None:
    page = console if console.is_terminal else Console(width=max(_PAGE, console.width))
    if runs:
        seeds = settings.seed_numbers
        each = f"mean of {len(seeds)} seeds ± standard deviation" if len(seeds) > 1 else f"seed {seeds[0]}"
        page.print(table(runs, f"{settings.problem}, {settings.steps:,} steps, {each}"))
    if refused:
        page.print(refusals(refused))
    if runs and importlib.util.find_spec("matplotlib"):
        drawn = curves.draw(runs, settings.out)
        page.print(f"plots: {', '.join(str(path) for path in drawn)}", markup=False, soft_wrap=True)
    elif runs:  # the runs are what took the time: do not lose them for a picture
        page.print("no plots: pip install 'hf-decentral[report]' brings matplotlib", markup=False)
