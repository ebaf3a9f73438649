"""Who averages with whom: one family a file, one row a topology.

A topology is a pure function from the number of a step to a :class:`~hf_decentral.rounds.Round`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hf_decentral.errors import unknown_name
from hf_decentral.errors.topology import wrong_hosts, wrong_workers
from hf_decentral.rounds import Round
from hf_decentral.topology.aer import aer
from hf_decentral.topology.base import Hosts, Topology
from hf_decentral.topology.base_graph import base_graph
from hf_decentral.topology.combinators import above, every, lazy, rounds, then, without
from hf_decentral.topology.complete import complete
from hf_decentral.topology.exponential import one_peer_exponential
from hf_decentral.topology.expression import evaluate, is_expression
from hf_decentral.topology.hierarchical import hierarchical
from hf_decentral.topology.ring import ring
from hf_decentral.topology.spectrum import Spectrum, spectrum


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        make: ``make(workers, hosts)`` gives the topology.
        summary: what it is, for people.
        exact: whether a period ends in the exact mean for any number of workers, with one worker a host.
    """

    make: Callable[[int, Hosts], Topology]
    summary: str
    exact: bool = False


TABLE: dict[str, Entry] = {
    "aer": Entry(aer, "alternating exponential ring: inside hosts and between pairs of hosts in turns", True),
    "base_graph": Entry(base_graph, "Base-2 graph: one peer a round, exact for any number of workers", True),
    "complete": Entry(complete, "everybody with everybody: the exact mean in every round", True),
    "hierarchical": Entry(
        hierarchical,
        "pairs of hosts take their mean; a worker sends only its shard over the network",
        True,
    ),
    "one_peer_exponential": Entry(one_peer_exponential, "one peer a round, at distances 1, 2, 4, ..."),
    "ring": Entry(ring, "a third from each side; the smallest stable step of all"),
}

__all__ = [
    "TABLE",
    "Entry",
    "Hosts",
    "Round",
    "Spectrum",
    "Topology",
    "above",
    "build",
    "every",
    "lazy",
    "names",
    "rounds",
    "spectrum",
    "then",
    "without",
]


def names() -> list[str]:
    """The names of all topologies."""
    return sorted(TABLE)


def build(name: str, workers: int, hosts: Hosts = None) -> Topology:
    """The topology of that name.

    Args:
        name: a name of the table, or combinators around some: ``"every(8, ring)"`` averages in every eighth
            step, ``"then(complete, 500, aer)"`` with everybody in the first 500 steps,
            ``"above(0.5, ring)"`` only while the consensus distance is not below 0.5, ``"lazy(ring)"`` with
            half of a worker's own parameters kept.
        workers: number of workers, 1 or more.
        hosts: the number of each worker's host; None stands for one worker a host.

    Raises:
        SettingsError: no topology has that name.
        TopologyError: the number of workers or the hosts cannot be meant.
    """
    if name not in TABLE and not is_expression(name):
        raise unknown_name("topology", name, TABLE)
    if not isinstance(workers, int) or workers < 1:
        raise wrong_workers(workers)
    if hosts is not None and (len(hosts) != workers or not all(isinstance(h, int) for h in hosts)):
        raise wrong_hosts(hosts, workers)
    if is_expression(name):
        return evaluate(name, TABLE, lambda inner: TABLE[inner].make(workers, hosts))
    return TABLE[name].make(workers, hosts)
