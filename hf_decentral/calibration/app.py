"""The front of a calibration: start the workers or be one, then write and tell what was found."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from hf_decentral.bench import launch, models, report, starting
from hf_decentral.bench.world import STARTED
from hf_decentral.calibration.settings import Settings, check_out, parse
from hf_decentral.cluster import measured
from hf_decentral.cluster.describe import UNCERTAIN
from hf_decentral.cluster.measured import Measured
from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors import DecentralizedError

_PAGE = 100  # characters of a line where it goes to a file


def main(words: Sequence[str]) -> None:
    """Run the calibration that a command line asks for.

    Raises:
        DecentralizedError: it cannot run like that, it was disturbed, or a worker failed.
    """
    settings, script = parse(words)
    started = STARTED in os.environ
    if not started:
        check_out(settings.path)
    if script or ("RANK" in os.environ and "WORLD_SIZE" in os.environ):
        found = _measured(settings, script)
        if found is None:
            return
        if started:
            starting.hand_back(measured.plain(found), os.environ[STARTED])
            return
    else:
        starting.refuse(settings, models.parameter_bytes(settings))
        with launch.ended_in_order():
            told = starting.start(settings, "hf_decentral.calibration", words)
        found = measured.known(told, "what worker 0 found")
    report.write_json(settings.path, measured.plain(found))
    show(found, settings)


def program() -> None:
    """:func:`main` as a program: an error of this package is told without a traceback."""
    try:
        main(sys.argv[1:])
    except DecentralizedError as error:
        told = f"{type(error).__name__}: {error}"
        Console(stderr=True, highlight=False).print(told, markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _measured(settings: Settings, script: Sequence[str]) -> Measured | None:
    """Be one of the workers; what was found, on worker 0 alone."""
    from hf_decentral.calibration.measure import measure  # here: it brings transformers

    found, first = measure(settings, script)
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return found if first else None


def show(found: Measured, settings: Settings) -> None:
    """Print what was found."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PAGE)
    table = Table(header_style="bold", title=f"{found.workers} workers, {found.model}")
    for heading in ("what", "found", "sure to"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, value, name in _rows(found):
        sure = found.uncertainty.get(name)
        table.add_row(what, value, "" if sure is None else f"{sure:.1%}")
    console.print(table)
    if found.workers == 1:
        console.print("one worker has no links: only its steps were measured", markup=False)
    path = settings.path
    console.print(
        f"written to {path}; next: hf-decentral plan --cluster {path}", markup=False, soft_wrap=True
    )


def _rows(found: Measured) -> list[tuple[str, str, str]]:
    """What, its value, and the name of its uncertainty."""
    c, work = found.cluster, found.work
    rows = [
        ("forward and backward, ms", f"{1e3 * c.law.mean:.1f} ({c.law.kind})", UNCERTAIN[0]),
        ("optimizer's step, ms", f"{1e3 * work.local_seconds:.1f}", ""),
        ("averaging one copy, ms", f"{1e3 * work.combine_seconds:.2f}", ""),
        ("parameters, MB", f"{work.parameter_bytes / 1e6:.1f}", ""),
    ]
    rows += [(f"worker {worker}, times as slow", f"{factor:.2f}", "") for worker, factor in c.slow.items()]
    links = (("between hosts", c.link, c.latency), ("inside a host", c.inside, c.inside_latency))
    for (what, rate, latency), name in zip(links, UNCERTAIN[1:], strict=True):
        bits = bits_per_second(rate)
        if bits is not None:
            rows.append((f"{what}, Mbit/s each way", f"{bits / 1e6:,.0f}", name))
            rows.append((f"{what}, latency, ms", f"{1e3 * latency:.2f}", ""))
    if found.workers > 1:
        rows.append(("All-Reduce, times its formula", f"{c.collective:.2f}", ""))
        rows.append(("two exchanges at once, times their share", f"{c.crowding:.2f}", ""))
    return rows
