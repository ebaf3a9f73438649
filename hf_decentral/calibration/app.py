"""The front of the calibration: start the workers or be one, then tell what was found."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from hf_decentral.bench import launch, models, starting
from hf_decentral.bench.world import STARTED
from hf_decentral.calibration import table
from hf_decentral.calibration.settings import Settings, check_out, parse
from hf_decentral.cluster import measured as files
from hf_decentral.cluster.measured import Measured
from hf_decentral.errors import DecentralizedError
from hf_decentral.errors.calibration import too_noisy
from hf_decentral.errors.cli import not_writable

MODULE = "hf_decentral.calibration"


def main(words: Sequence[str]) -> None:
    """Calibrate as a command line asks.

    Raises:
        DecentralizedError: it cannot be measured like that, repeats differ too much, or a worker failed.
    """
    settings, script = parse(words)
    check_out(settings.path)
    if script or ("RANK" in os.environ and "WORLD_SIZE" in os.environ):
        _worker(settings, script)
    else:
        starting.refuse(settings, models.parameter_bytes(settings))
        with launch.ended_in_order():
            raw = starting.start(settings, MODULE, words)
        _finish(settings, files.from_content(raw["measured"], settings.out), raw["disturbed"], told=True)


def program() -> None:
    """:func:`main` as a program: an error of this package is told without a traceback."""
    try:
        main(sys.argv[1:])
    except DecentralizedError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _worker(settings: Settings, script: Sequence[str]) -> None:
    """Be one of the workers. Worker 0 hands its result to who started it, or tells it."""
    from hf_decentral.calibration.measure import measure

    first = os.environ.get("RANK", "0") == "0"
    outcome = measure(settings, script)
    file = os.environ.get(STARTED)
    if file is None:
        _finish(settings, outcome.measured, outcome.disturbed, told=first)
    elif first:
        found = files.content(outcome.measured)
        starting.hand_back({"measured": found, "disturbed": outcome.disturbed}, file)


def _finish(settings: Settings, measured: Measured, disturbed: list[str], told: bool) -> None:
    """Refuse, or write and show; on the other workers of a launcher only refuse."""
    if disturbed and not settings.force:
        raise too_noisy(disturbed)
    if not told:
        return
    try:
        files.write(settings.path, measured)
    except OSError as error:
        raise not_writable(settings.path, str(error)) from error
    table.show(measured, disturbed, settings.path)
