"""Which workers share a host."""

from __future__ import annotations

import os
import socket

from hf_decentral.transport.wire import Transport

# Set by torchrun (and so by `accelerate launch`) and by SLURM: the number of the launcher or node. Two of
# them on one machine are two hosts, as somebody meant who started two.
_NODE_VARIABLES = ("GROUP_RANK", "SLURM_NODEID")


def find_hosts(transport: Transport) -> tuple[int, ...] | None:
    """The host of each worker as a number, or None where the workers live in one process. Collective.

    Workers belong to one host when both the name of the machine and the launcher's number of the node agree.
    """
    if len(transport.local) == transport.workers:
        return None
    node = next((os.environ[name] for name in _NODE_VARIABLES if name in os.environ), "")
    numbers: dict[tuple[str, str], int] = {}
    return tuple(
        numbers.setdefault(host, len(numbers)) for host in transport.gather((socket.gethostname(), node))
    )
