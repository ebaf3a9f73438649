"""Starting weights that depend on a seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context in which torch draws the numbers of a seed; outside it everything goes on as before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
