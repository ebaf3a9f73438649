"""Errors about topologies that the workers at hand cannot form."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.errors.base import TopologyError, sentence


def wrong_workers(workers: int) -> TopologyError:
    """Fewer than one worker."""
    return TopologyError(
        sentence(f"{workers} workers were given", "a topology has 1 worker or more", "give the number of workers")
    )


def wrong_hosts(hosts: Sequence[int], workers: int) -> TopologyError:
    """Hosts for another number of workers."""
    return TopologyError(
        sentence(
            f"hosts names {len(hosts)} workers: {list(hosts)}",
            f"one host number for each of the {workers} workers",
            "give a number for each worker, such as 0,0,1,1 for two hosts of two workers, or leave it out",
        )
    )
