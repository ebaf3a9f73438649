"""A topology out of a file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.cli import no_matrix_file
from hf_decentral.topology import Topology, custom, from_graph


def _pairs(path: Path) -> list[tuple[int, int]]:
    """Two workers a line; what follows them, and lines that begin with ``#``, has no effect."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        if words:
            try:
                found.append((int(words[0]), int(words[1])))
            except (IndexError, ValueError):
                raise ValueError(f"line {number} does not begin with two workers: {line!r}") from None
    return found


READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": lambda path: np.loadtxt(path, delimiter=",", ndmin=2),
    ".edgelist": _pairs,
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".npy": lambda path: np.load(path, allow_pickle=False),
    ".pt": lambda path: torch.load(path, map_location="cpu", weights_only=True),
}


def read(path: Path, workers: int | None) -> Topology:
    """The topology of a file: an edge list (``.edgelist``), or weights (the other kinds).

    Args:
        path: the ending says what the file is.
        workers: number of workers, if it was given.

    Raises:
        SettingsError: another ending, or other workers than in the file.
        DataError: the file cannot be read.
        TopologyError: its content is no topology.
    """
    if path.suffix not in READERS:
        raise unknown_name("ending of a file with weights", path.suffix, READERS)
    try:
        content = READERS[path.suffix](path)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise no_matrix_file(path, str(error).split("\n")[0]) from error
    if path.suffix == ".edgelist":
        return from_graph(content, workers, name=path.name)
    topology = custom(content, name=path.name)
    if workers not in (None, topology.workers):
        advice = "leave it out, or give another file"
        raise out_of_range("--workers", workers, f"{topology.workers}, the workers of {path.name}", advice)
    return topology
