"""Which runs a simulation is made of: every algorithm on every topology, for every number of workers."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import product
from typing import Any

from hf_decentral import algorithms
from hf_decentral.cli.simulate_lists import skew_name
from hf_decentral.cli.simulate_settings import Settings


@dataclass(frozen=True)
class Combination:
    """One run, as far as it differs from the others.

    Attributes:
        algorithm: its name.
        topology: the one that is asked for; for an algorithm that brings its own, that one.
        workers: number of workers.
        skew: alpha of the Dirichlet distribution over labels; None: rows dealt out evenly.
        lr: the learning rate.
        seed: of weights and of the order of rows.
    """

    algorithm: str
    topology: str
    workers: int
    skew: float | None
    lr: float
    seed: int

    def __str__(self) -> str:
        """For a person who watches."""
        where = f"{self.algorithm}, {self.topology}, {self.workers} workers"
        return f"{where}, {skew_name(self.skew)}, seed {self.seed}"


def combinations(settings: Settings) -> list[Combination]:
    """All runs, in the order in which they run: each seed goes through all before the next one begins.

    An algorithm that brings its own topology runs once for a number of workers, not once a topology.
    """
    found: dict[Combination, None] = {}
    for seed, skew, workers, topology, name in product(
        settings.seed_numbers,
        settings.skews,
        settings.worker_counts,
        settings.topology_names,
        settings.algorithm_names,
    ):
        algorithm = algorithms.build(name).every(settings.period)
        asked = topology if algorithm.chooses else algorithm.rounds(topology)
        found[Combination(name, asked, workers, skew, settings.lr_of(name), seed)] = None
    return list(found)


def identity(settings: Settings, combination: Combination) -> dict[str, Any]:
    """Everything on which the outcome of a run depends, as plain keys."""
    shared = {name: getattr(settings, name) for name in settings.SHARED}
    return {**asdict(combination), **shared, "version": metadata.version("hf-decentral")}


def file_name(about: dict[str, Any]) -> str:
    """The name under which a run is kept: some words for a person, and a hash of all of it."""
    text = json.dumps(about, sort_keys=True)
    words = (about["algorithm"], about["topology"], about["workers"], f"seed{about['seed']}")
    readable = re.sub(r"[^\w.-]+", "_", "-".join(map(str, words)))[:60].strip("_")
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
