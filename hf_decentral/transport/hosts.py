"""Which workers share a host."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from hf_decentral.transport.wire import Transport

# Set by torchrun (and so by `accelerate launch`) and by SLURM: the number of the launcher or node. Two of
# them on one machine are two hosts, as somebody meant who started two.
_NODE_VARIABLES = ("GROUP_RANK", "SLURM_NODEID")


Place = tuple[str, str]
"""The name of a machine, and the launcher's number of the node."""


def place() -> Place:
    """Where this process runs."""
    node = next((os.environ[name] for name in _NODE_VARIABLES if name in os.environ), "")
    return socket.gethostname(), node


def numbered(places: Sequence[Place]) -> tuple[int, ...]:
    """The host of each worker as a number, from where each runs.

    Workers belong to one host when both the name of the machine and the launcher's number of the node agree.
    """
    numbers: dict[Place, int] = {}
    return tuple(numbers.setdefault(each, len(numbers)) for each in places)


def find_hosts(transport: Transport) -> tuple[int, ...] | None:
    """The host of each worker as a number, or None where the workers live in one process. Collective."""
    if len(transport.local) == transport.workers:
        return None
    return numbered(transport.gather(place()))
