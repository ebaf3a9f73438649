"""The settings that an algorithm of the literature stands for, where a user named one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hf_decentral import algorithms
from hf_decentral.algorithms import Algorithm
from hf_decentral.errors.algorithms import has_own_rounds, needs_topology, no_global_step, no_period
from hf_decentral.errors.auto import nothing_to_choose

ALLREDUCE = "allreduce"
"""The topology that is none: Accelerate's own All-Reduce, as a baseline."""

AUTO = "auto"
"""The topology that is chosen when the run knows its cluster; an algorithm writes its schedule around it."""


def compose(values: dict[str, Any], sources: dict[str, str], ranks: Mapping[str, int]) -> None:
    """Put what an algorithm says in the place of defaults, and of what a weaker place says.

    A launch file that names a topology is no reason to refuse an algorithm on the command line that has its
    own; two that were named in one place must fit.

    Args:
        values: the settings by name; changed in place.
        sources: where each was found; changed in place.
        ranks: the place of each, the strongest first.

    Raises:
        SettingsError: an algorithm that cannot run on real processes, or not on the topology that was given;
            a period without rounds that it could be of; what is known of the cluster without a choice.
    """
    _compose(values, sources, ranks)
    _fit_cluster(values, ranks)


def _compose(values: dict[str, Any], sources: dict[str, str], ranks: Mapping[str, int]) -> None:
    name = values["algorithm"]
    if name is None:
        if values["period"] is not None:
            raise no_period(None, values["topology"], values["period"])
        return
    algorithm = algorithms.build(name)
    if algorithm.alone:
        raise no_global_step(name, algorithm.alone)
    if values["period"] is not None and "{period}" not in algorithm.topology:
        raise no_period(name, algorithm.topology.format(topology=values["topology"]), values["period"])
    algorithm = algorithm.every(values["period"])
    told, own = f"algorithm {name}", ranks["algorithm"]
    asked = ranks["topology"] <= own
    base, values["topology"] = values["topology"], _topology(name, algorithm, values["topology"], asked)
    if not asked and (values["topology"] != base or sources["topology"] == "default"):
        sources["topology"] = told
    how = algorithm.how(base)
    for each in ("order", "averaging", "delay"):
        if ranks[each] > own:
            values[each], sources[each] = how[each], told


def is_auto(topology: str) -> bool:
    """Whether a topology is one that is yet to be chosen, as ``"auto"`` or ``"every(4, auto)"`` is."""
    return AUTO in re.findall(r"\w+", topology)


def chosen(topology: str, choice: str) -> str:
    """The topology with what was chosen in the place of ``auto``."""
    return re.sub(rf"\b{AUTO}\b", choice, topology)


def _fit_cluster(values: dict[str, Any], ranks: Mapping[str, int]) -> None:
    """What is known of the cluster serves a choice; a weaker place may name it without need."""
    if values["cluster"] is None or is_auto(values["topology"]):
        return
    if ranks["cluster"] <= ranks["topology"]:
        raise nothing_to_choose(values["cluster"], values["topology"])
    values["cluster"] = None


def _topology(name: str, algorithm: Algorithm, given: str, asked: bool) -> str:
    if given == ALLREDUCE:
        if asked:
            raise needs_topology(name)
        given = "aer"
    rounds = algorithm.rounds(given)
    if not algorithm.chooses and asked and given not in (rounds, _inside(rounds)):
        raise has_own_rounds(name, rounds, given)
    return rounds


def _inside(rounds: str) -> str:
    """``complete`` of ``every(16, complete)``."""
    return rounds.removeprefix("every(").partition(", ")[2].removesuffix(")") or rounds
