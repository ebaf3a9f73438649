"""Start the workers of a measurement where no launcher has: on shaped network namespaces, or on loopback."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from hf_decentral.bench import launch
from hf_decentral.bench.namespaces import Namespaces, require
from hf_decentral.bench.settings import Workload
from hf_decentral.bench.world import STARTED
from hf_decentral.errors import out_of_range
from hf_decentral.errors.bench import too_little_memory

HOSTS, WORKERS_PER_HOST = 4, 1
_PROCESS_BYTES = 4e8  # of a worker with torch and transformers in it
_COPIES = 5  # parameters, gradients, Adam's two moments, a receive buffer


def workers_of(settings: Workload) -> int:
    """How many workers :func:`start` starts."""
    return (settings.hosts or HOSTS) * (settings.workers_per_host or WORKERS_PER_HOST)


def refuse(settings: Workload, parameter_bytes: float) -> None:
    """What can be seen before any worker is started.

    Args:
        settings: who computes what, and where.
        parameter_bytes: of a worker's model.

    Raises:
        SettingsError: a worker that is slow and not there, or rates of hosts that are none.
        LaunchError: too little memory, or no namespaces here.
    """
    workers = workers_of(settings)
    settings.rates(settings.hosts or HOSTS)
    if settings.slow_worker is not None and settings.slow_worker >= workers:
        raise out_of_range(
            "--slow_worker", settings.slow_worker, f"a worker from 0 to {workers - 1}", "lower it"
        )
    if settings.link != "none":
        require()
    needed = workers * (_PROCESS_BYTES + _COPIES * parameter_bytes)
    free = psutil.virtual_memory().available
    if needed > free:
        raise too_little_memory(workers, needed, free)


def start(settings: Workload, module: str, words: Sequence[str]) -> dict[str, Any]:
    """Run a module as every worker, and read what worker 0 wrote to the file that :data:`STARTED` names.

    Raises:
        LaunchError: a worker failed, or the kernel makes no namespaces.
    """
    hosts = settings.hosts or HOSTS
    each = settings.workers_per_host or WORKERS_PER_HOST
    with tempfile.TemporaryDirectory(prefix="hfd-bench-") as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", module, *words]
        extra = {STARTED: str(result)}
        if settings.link == "none":
            launch.run(launch.Loopback(hosts), each, command, extra)
        else:
            with Namespaces(settings.rates(hosts)) as made:
                launch.run(made, each, command, extra)
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def hand_back(result: dict[str, Any], file: str) -> None:
    """Worker 0's result, for :func:`start`."""
    Path(file).write_text(json.dumps(result), encoding="utf-8")
