"""The front of the benchmark: start the workers or be one, then tell what was found."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from hf_decentral.bench import launch, models, pictures, report, starting
from hf_decentral.bench.figures import cases, memory_cases
from hf_decentral.bench.settings import Settings, parse
from hf_decentral.bench.variants import check
from hf_decentral.bench.world import STARTED
from hf_decentral.errors import DecentralizedError

ABOUT = """Step time, bytes, waiting and memory of ways to train in parallel, in one run, in alternating
blocks. Without a launcher the workers are started here, on shaped network namespaces or on loopback; under
torchrun or accelerate launch the workers of that run are measured."""


def main(words: Sequence[str]) -> None:
    """Run the benchmark that a command line asks for.

    Raises:
        DecentralizedError: it cannot run like that, or a worker failed.
    """
    settings = parse(words, ABOUT)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        raw = _measured(settings)
        if raw is not None:
            _tell(settings, raw)
    else:
        with launch.ended_in_order():
            _refuse(settings)
            _tell(settings, starting.start(settings, "hf_decentral.bench", words))


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


def _measured(settings: Settings) -> dict[str, Any] | None:
    """Be one of the workers. Worker 0 hands its result to who started it, or gets it back to tell it."""
    from hf_decentral.bench.measure import measure

    raw = measure(settings)
    file = os.environ.get(STARTED)
    if raw is None or file is None:
        return raw
    starting.hand_back(raw, file)
    return None


def _refuse(settings: Settings) -> None:
    """What can be seen before any worker is started."""
    check(settings.names, starting.workers_of(settings))
    profile = None if settings.profile is None else str(Path(settings.profile) / "trace.json")
    for path in (settings.json, settings.plot, profile):
        if path is not None:
            report.check_writable(Path(path))
    if settings.plot is not None:
        pictures.figure(1, 1)  # told before a long run where it cannot be drawn
    starting.refuse(
        settings, settings.memory_mb * 2**20 if settings.memory else models.parameter_bytes(settings)
    )


def _tell(settings: Settings, raw: Mapping[str, Any]) -> None:
    """Print the result, and write and draw it where that is asked for."""
    hosts = -(-raw["workers"] // raw["workers_per_host"])
    found = memory_cases(raw) if settings.memory else cases(raw, settings.rates(hosts))
    result = {
        "what": _title(settings, raw, hosts),
        "cases": found,
        "left_out": raw["left_out"],
        "workers": raw["workers"],
        "workers_per_host": raw["workers_per_host"],
        "parameter_bytes": raw["parameter_bytes"],
        "settings": asdict(settings),
    }
    report.show(result)
    if settings.json is not None:
        report.write_json(Path(settings.json), result)
    if settings.plot is not None and not settings.memory:
        report.plot(Path(settings.plot), result)


def _title(settings: Settings, raw: Mapping[str, Any], hosts: int) -> str:
    model = f"{settings.emulate_ms:g} ms emulated" if settings.emulate_ms else settings.model
    return (
        f"{hosts} hosts × {raw['workers_per_host']}, {settings.link}, {model}, "
        f"{raw['parameter_bytes'] / 1e6:.1f} MB of parameters, {raw['device']}"
    )
