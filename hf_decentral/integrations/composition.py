"""The settings that an algorithm of the literature stands for, where a user named one."""

from __future__ import annotations

from typing import Any

from hf_decentral import algorithms
from hf_decentral.algorithms import Algorithm
from hf_decentral.errors.algorithms import has_own_rounds, needs_topology, no_global_step

ALLREDUCE = "allreduce"
"""The topology that is none: Accelerate's own All-Reduce, as a baseline."""


def compose(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Put what an algorithm says in the place of defaults; what a user said otherwise stays.

    Args:
        values: the settings by name; changed in place.
        sources: where each was found; changed in place.

    Raises:
        SettingsError: an algorithm that cannot run on real processes, or not on the topology that was given.
    """
    name = values["algorithm"]
    if name is None:
        return
    algorithm = algorithms.build(name).every(values["period"])
    if algorithm.alone:
        raise no_global_step(name, algorithm.alone)
    told = f"algorithm {name}"
    values["topology"] = _topology(name, algorithm, values["topology"], sources["topology"] != "default")
    if sources["topology"] == "default":
        sources["topology"] = told
    how = algorithm.how(values["topology"])
    for each in ("order", "averaging", "delay"):
        if sources[each] == "default":
            values[each], sources[each] = how[each], told


def _topology(name: str, algorithm: Algorithm, given: str, asked: bool) -> str:
    if given == ALLREDUCE:
        raise needs_topology(name)
    rounds = algorithm.rounds(given)
    if not algorithm.chooses and asked and given != rounds:
        raise has_own_rounds(name, rounds, given)
    return rounds
