"""How well a configuration keeps its workers together, and from where on that is too little."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hf_decentral.topology.base import Topology
from hf_decentral.topology.spectrum import radius
from hf_decentral.topology.speed import applied, speed

FACTOR = 1e6
"""By which the consensus distance is to fall."""

MOST_APART = 10.0
"""Steps' worth of differences beyond which a configuration is marked. See :func:`mark`."""

_STARTS, _ALL = 16, 64
_LONGEST, _STRETCH = 400, 8  # steps that are looked at, and how many times as many where rounds are rare
_FAR = 10  # times the threshold, beyond which nobody asks how far
_BLOCK, _STEADY = 16, 0.002  # steps after which it has settled if it grew by no more than this share
_EIGENVALUES = 128  # workers; the products of larger matrices take long


@dataclass(frozen=True)
class Mixing:
    """How fast a topology takes differences between the workers away.

    Attributes:
        rounds: steps, idle ones counted, that make the consensus distance a million times smaller; None:
            more than were tried.
        gap: spectral gap of a step, ``1 - |l|^(1/p)`` with the second eigenvalue ``l`` of a period of ``p``
            steps; 1 where a period ends in the exact mean, None where rounds are redrawn.
    """

    rounds: int | None
    gap: float | None


_found: dict[tuple[object, ...], Mixing] = {}


def mixing(topology: Topology, hosts: tuple[int, ...]) -> Mixing:
    """The numbers of a topology; found once for each name, number of workers and their hosts."""
    key = topology.name, topology.workers, hosts
    if key not in _found:
        run = speed(topology, FACTOR)
        exact = run.exact_after is not None
        _found[key] = Mixing(run.rounds, 1.0 if exact else _gap(topology, run.rounds))
    return _found[key]


def _gap(topology: Topology, rounds: int | None) -> float | None:
    period = topology.period
    if period is None:
        return None
    if topology.workers > _EIGENVALUES:
        return None if rounds is None else 1 - FACTOR ** (-1 / rounds)
    product = topology(0).matrix()
    for step in range(1, period):
        product = topology(step).matrix() @ product
    second = radius(product - 1 / topology.workers)
    return max(0.0, float(1 - second ** (1 / period)))


def apart(topology: Topology, hosts: tuple[int, ...], left: float = 0.0) -> float:
    """How far workers drift apart whose updates differ all the time, in differences of one step.

    With the part ``d`` of each update that is a worker's own, as unequal data make it, adapt while combine
    keeps ``D <- M D + d``, whose norm in the steady state is this times that of ``d`` (in its longest step of
    a period; ``d`` is of no direction more than of others, and from 65 workers on sixteen draws from a normal
    distribution stand for all). It is 1 with the exact mean in every step, ``k`` with one in every ``k``-th,
    and ``sqrt(mean 1 / (1 - l)^2)`` over the eigenvalues ``l`` of a round that repeats.

    Args:
        topology: who averages with whom.
        hosts: the host of each worker, beside the name what tells one topology from another.
        left: what the averaging method leaves of a difference that it should take away.
    """
    return _apart(topology, (topology.name, topology.workers, hosts), round(left, 6))


@lru_cache(maxsize=1024)
def _apart(topology: Topology, key: object, left: float) -> float:
    workers = topology.workers
    exact = workers <= _ALL  # all directions, or a few drawn ones
    own = np.eye(workers) if exact else np.random.default_rng(0).standard_normal((workers, _STARTS))
    own -= own.mean(0)
    begin = float(np.linalg.norm(own))
    if begin == 0.0:
        return 0.0
    period = topology.period or 1
    made = lru_cache(maxsize=period)(lambda step: applied(topology(step)))
    differences, longest, before = np.zeros_like(own), 0.0, 0.0
    block = period * -(-_BLOCK // period)
    for step in range(max(_LONGEST * min(period, _STRETCH), 2 * block)):
        averaged = made(step % period if topology.period else step)(differences)
        differences = (1 - left) * averaged + left * differences + own
        longest = max(longest, float(np.linalg.norm(differences)) / begin)
        if (step + 1) % block == 0:
            if longest <= (1 + _STEADY) * before or longest > _FAR * MOST_APART:
                break
            before = longest
    return longest


def mark(topology: Topology, hosts: tuple[int, ...], left: float = 0.0) -> str:
    """What is poor about a configuration; empty where nothing is.

    It is poor where workers lie further apart than ten steps of their differences (:func:`apart`). Momentum
    with the usual ``beta = 0.9`` remembers ``1 / (1 - beta) = 10`` steps, so that an update of a single
    worker is up to ten steps of differences off the mean of all in any case; replicas that drift no further
    compute their gradients within what momentum moves them anyway, those that drift further do not.
    """
    drift = apart(topology, hosts)
    if drift > MOST_APART:
        return f"mixes slowly: workers drift apart by {drift:.0f} steps of their differences"
    lossy = apart(topology, hosts, left) if left else drift
    if lossy > MOST_APART:
        return f"lossy: {left:.0%} of a difference outlives a round, workers drift {lossy:.0f} steps apart"
    return ""
