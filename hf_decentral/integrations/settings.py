"""The settings of a run, each found in the first place that has it.

An argument in the code, then the environment (``DECENTRAL_TOPOLOGY=ring``), then the file named by
``DECENTRAL_CONFIG``, then the file with which ``accelerate launch`` was called, then the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from hf_decentral import algorithms, averaging, topology
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.integrations import hosts as host_lists
from hf_decentral.integrations import launch
from hf_decentral.integrations.composition import ALLREDUCE, AUTO, compose, is_auto
from hf_decentral.optim import Order
from hf_decentral.optim.accum_adam import HORIZONS

_PREFIX, _CONFIG = "DECENTRAL_", "DECENTRAL_CONFIG"
_ACCELERATE_KEYS = {"compute_environment", "distributed_type", "num_processes", "mpirun_config"}


@dataclass(frozen=True)
class Settings:
    """How a run averages.

    Attributes:
        topology: who averages with whom, or ``"allreduce"``, or ``"auto"``: chosen by what the first steps
            show, or by what is known of the cluster.
        accum: optimizer steps for which AccumAdam gathers gradients before it commits its moments.
        horizon: whether AccumAdam's betas count ``"windows"`` (as published) or ``"steps"`` (betas ** accum).
        averaging: what is sent and how it is combined.
        order: where the average stands relative to the local step.
        comm_timeout: longest wait for a neighbour, in seconds.
        hosts: workers of each host; None: found.
        bucket_mb: megabytes of parameters that are exchanged as one.
        algorithm: an algorithm of the literature, which says what of the above is not given.
        period: steps from one of its rounds to the next; None: its own.
        delay: local steps that an exchange travels; None: as the order says.
        cluster: the file that tells of the cluster, for ``"auto"``; None: the first steps show it.
        sources: where each setting was found.
    """

    topology: str = "aer"
    accum: int = 4
    horizon: str = "windows"
    averaging: str = "plain"
    order: str = "awc"
    comm_timeout: float = 600.0
    hosts: tuple[int, ...] | None = None
    bucket_mb: float = 4.0
    algorithm: str | None = None
    period: int | None = None
    delay: int | None = None
    cluster: str | None = None
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def auto(self) -> bool:
        """Whether the topology is yet to be chosen."""
        return is_auto(self.topology)

    def fixed(self, name: str) -> bool:
        """Whether somebody, or an algorithm, has said what a setting is."""
        return dict(self.sources).get(name, "default") != "default"

    def describe(self) -> str:
        """All settings with their sources, on one line."""
        told = []
        for name, source in self.sources:
            value = getattr(self, name)
            if value is None and name != "hosts":
                continue
            shown = "found" if value is None else ",".join(map(str, value)) if name == "hosts" else value
            told.append(f"{name}={shown} ({source})")
        return ", ".join(told)


NAMES = tuple(f.name for f in fields(Settings) if f.name != "sources")


class Given(TypedDict, total=False):
    """The settings beside the topology as arguments; None stands for one that is left out."""

    accum: int | None
    horizon: str | None
    averaging: str | None
    order: str | None
    comm_timeout: float | None
    hosts: str | Sequence[int] | None
    bucket_mb: float | None
    algorithm: str | None
    period: int | None
    delay: int | None
    cluster: str | None


def resolve(explicit: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Find every setting.

    Args:
        explicit: arguments; None stands for one that was not given.
        environment: None: that of this process.

    Raises:
        SettingsError: an unknown name (the nearest is offered), a value out of range, an unusable file.
    """
    for name in explicit:
        if name not in NAMES:
            raise unknown_name("setting", name, NAMES)
    environment = os.environ if environment is None else environment
    places: list[tuple[str, Mapping[str, Any]]] = [
        ("argument", {k: v for k, v in explicit.items() if v is not None}),
        ("environment", _from_environment(environment)),
    ]
    named = environment.get(_CONFIG, "")
    if named:
        places.append((named, _from_file(Path(named), _CONFIG, plain=True)))
    launched = launch.launcher_config()
    if launched is not None:
        places.append((str(launched), _from_file(launched, "accelerate launch --config_file", plain=False)))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    ranks: dict[str, int] = {}
    for name in NAMES:
        source, value = next(
            ((s, p[name]) for s, p in places if name in p), ("default", getattr(Settings, name))
        )
        values[name] = _checked(name, value)
        sources[name] = source
        ranks[name] = next((rank for rank, (_, p) in enumerate(places) if name in p), len(places))
    compose(values, sources, ranks)
    return Settings(**values, sources=tuple(sources.items()))


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key, value in environment.items():
        if key.startswith(_PREFIX) and key != _CONFIG:
            name = key[len(_PREFIX) :].lower()
            if name not in NAMES:
                known = [_CONFIG.lower(), *(_PREFIX.lower() + n for n in NAMES)]
                raise unknown_name("setting in the environment:", key.lower(), known)
            if value:
                found[name] = value
    return found


def _from_file(path: Path, named_by: str, *, plain: bool) -> dict[str, Any]:
    """The settings in a file: ``decentral_topology`` at the top or under mpirun_config, or ``topology``."""
    content = launch.read(path, named_by)
    below = content.get("mpirun_config")
    prefix = _PREFIX.lower()
    both = [*content.items(), *(below.items() if isinstance(below, dict) else ())]
    found = {str(k)[len(prefix) :]: v for k, v in both if str(k).startswith(prefix)}
    if not found and plain and not _ACCELERATE_KEYS & content.keys():
        found, prefix = dict(content), ""
    for name in found:
        if name not in NAMES:
            raise unknown_name(f"setting in {path}:", prefix + name, [prefix + n for n in NAMES])
    return {name: value for name, value in found.items() if value is not None}


def _checked(name: str, value: Any) -> Any:
    """A value as its type, if it can be meant."""
    if value is None and getattr(Settings, name) is None:
        return None
    if name == "hosts":
        return host_lists.parse(value)
    if name == "cluster":
        return str(value)
    if name in ("accum", "period", "delay"):
        return _number(name, value, int, "a whole number of steps, 1 or more")
    if name == "comm_timeout":
        return _number(name, value, float, "seconds, more than 0")
    if name == "bucket_mb":
        return _number(name, value, float, "megabytes, more than 0")
    known = _known(name)
    text = str(value).strip().lower()
    if name == "topology" and "(" in text:
        return topology.build(text, 1).name
    if name == "averaging" and "(" in text:
        averaging.build(text)
        return text
    if text not in known:
        raise unknown_name(name, value, known)
    return text


def _known(name: str) -> list[str]:
    """The names that a setting can have."""
    if name == "topology":
        return [ALLREDUCE, AUTO, *topology.names()]
    if name == "averaging":
        return averaging.names()
    if name == "algorithm":
        return algorithms.names()
    return [order.value for order in Order] if name == "order" else list(HORIZONS)


def _number(name: str, value: Any, kind: type[int | float], expected: str) -> float:
    try:
        number = kind(value)
        fits = number > 0 and float(number) == float(value) and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits or number == float("inf"):
        raise out_of_range(name, value, expected, f"leave it out for {getattr(Settings, name)}")
    return number
