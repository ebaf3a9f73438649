"""Who averages with whom: one family a file, one row a topology.

A topology is a pure function from the number of a step to a :class:`~hf_decentral.rounds.Round`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hf_decentral.errors import unknown_name
from hf_decentral.errors.topology import wrong_hosts, wrong_workers
from hf_decentral.rounds import Round
from hf_decentral.topology.aer import aer
from hf_decentral.topology.base import Hosts, Topology
from hf_decentral.topology.base_graph import base_graph
from hf_decentral.topology.combinators import above, every, lazy, rounds, then, without
from hf_decentral.topology.complete import complete
from hf_decentral.topology.custom import custom
from hf_decentral.topology.equitopo import d_equistatic, u_equistatic
from hf_decentral.topology.exponential import one_peer_exponential, static_exponential
from hf_decentral.topology.expression import evaluate, is_expression
from hf_decentral.topology.graph import from_graph
from hf_decentral.topology.hierarchical import hierarchical
from hf_decentral.topology.hypercube import hypercube
from hf_decentral.topology.hypercube import serves as hypercube_serves
from hf_decentral.topology.redrawn import random_matching, random_ring
from hf_decentral.topology.ring import ring
from hf_decentral.topology.spectrum import Spectrum, spectrum
from hf_decentral.topology.star import star
from hf_decentral.topology.torus import serves as torus_serves
from hf_decentral.topology.torus import torus


def _any(workers: int) -> bool:
    return True


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        make: ``make(workers, hosts, *numbers)`` gives the topology.
        summary: what it is, for people.
        exact: whether a period ends in the exact mean for any number of workers, with one worker a host.
        serves: whether it is there for so many workers; with others ``make`` raises a TopologyError.
        defaults: the whole numbers that may stand in parentheses behind the name, and what they are if left
            out.
    """

    make: Callable[..., Topology]
    summary: str
    exact: bool = False
    serves: Callable[[int], bool] = _any
    defaults: tuple[int, ...] = ()


TABLE: dict[str, Entry] = {
    "aer": Entry(aer, "alternating exponential ring: inside hosts and between pairs of hosts in turns", True),
    "base_graph": Entry(
        base_graph,
        "Base-(k+1) graph, k peers a round, exact for any number of workers: base_graph(k)",
        True,
        defaults=(1,),
    ),
    "complete": Entry(complete, "everybody with everybody: the exact mean in every round", True),
    "d_equistatic": Entry(
        d_equistatic,
        "about ln n directed neighbours at random distances: d_equistatic(seed, graphs)",
        defaults=(0, 0),
    ),
    "hierarchical": Entry(
        hierarchical,
        "pairs of hosts take their mean; a worker sends only its shard over the network",
        True,
    ),
    "hypercube": Entry(
        hypercube, "all log2 n neighbours of a hypercube at once; 2^r workers", serves=hypercube_serves
    ),
    "one_peer_exponential": Entry(one_peer_exponential, "one peer a round, at distances 1, 2, 4, ..."),
    "random_matching": Entry(
        random_matching, "pairs that are redrawn in every round: random_matching(seed)", defaults=(0,)
    ),
    "random_ring": Entry(
        random_ring, "a ring whose order is redrawn in every round: random_ring(seed)", defaults=(0,)
    ),
    "ring": Entry(ring, "a third from each side; mixes slowly"),
    "star": Entry(star, "worker 0 with all others, who hear nobody else"),
    "static_exponential": Entry(static_exponential, "all peers at distances 1, 2, 4, ... in every round"),
    "torus": Entry(
        torus, "a fifth from each of four neighbours on a grid; a x b workers", serves=torus_serves
    ),
    "u_equistatic": Entry(
        u_equistatic,
        "about 2 ln n neighbours at random distances, symmetric: u_equistatic(seed, graphs)",
        defaults=(0, 0),
    ),
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
    "custom",
    "every",
    "from_graph",
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
        name: a name of the table, with numbers behind it where it takes some: ``"base_graph(2)"``,
            ``"random_matching(7)"``; or combinators around some: ``"every(8, ring)"`` averages in every
            eighth step, ``"then(complete, 500, aer)"`` with everybody in the first 500 steps,
            ``"above(0.5, ring)"`` only while the consensus distance is not below 0.5,
            ``"lazy(ring)"`` with half of a worker's own parameters kept.
        workers: number of workers, 1 or more.
        hosts: the number of each worker's host; None stands for one worker a host.

    Raises:
        SettingsError: no topology has that name, or it does not take these numbers.
        TopologyError: the number of workers or the hosts cannot be meant, or the topology is there for other
            numbers of workers only.
    """
    if name not in TABLE and not is_expression(name):
        raise unknown_name("topology", name, TABLE)
    if not isinstance(workers, int) or workers < 1:
        raise wrong_workers(workers)
    if hosts is not None and (len(hosts) != workers or not all(isinstance(h, int) for h in hosts)):
        raise wrong_hosts(hosts, workers)

    def make(word: str, numbers: tuple[int, ...]) -> Topology:
        defaults = TABLE[word].defaults
        whole = [*numbers, *defaults[len(numbers) :]]
        told = whole[:]
        while told and told[-1] == defaults[len(told) - 1]:
            told.pop()  # one name for one topology: base_graph(1) is base_graph
        topology = TABLE[word].make(workers, hosts, *whole)
        return replace(topology, name=f"{word}({', '.join(map(str, told))})") if told else topology

    if is_expression(name):
        return evaluate(name, {word: len(entry.defaults) for word, entry in TABLE.items()}, make)
    return make(name, ())
