"""The virtual time of a run in lock step: when each worker begins each of its steps.

Every worker computes for its own time, and waits for those only whom it hears. ``c_i(t)`` is its compute time
in step ``t``, and ``E_i(t)`` the time at which all that it hears in the round of that step has arrived: begun
when the last of them was ready, and carried as :mod:`hf_decentral.cluster.links` says. A step begins at

- adapt while combine: ``T_i(t+1) = max(T_i(t) + c_i(t), E_i(t))``, the exchange begun at ``T(t)``;
- adapt then combine: ``T_i(t+1) = E_i(t)``, the exchange begun at ``T(t) + c(t)``;
- combine then adapt: ``T_i(t+1) = E_i(t) + c_i(t)``, the exchange begun at ``T(t)``.

The recursion is ours, made to compare algorithms; it is linear in max and plus, so that on the same compute
times hearing fewer workers is never slower. Kernels of the exchange that slow the computing are left out.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_decentral.cluster.draws import Vector
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.links import Costs, Links
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.topology import nobody_left
from hf_decentral.optim.plan import Order
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.topology.shards import sharded

_KEPT = 64  # rounds whose costs are remembered: more than a period has


class Clock:
    """Virtual time of ``workers`` workers that all take the same steps.

    Args:
        cluster: compute times and links.
        workers: number of workers, ``W``.
        seed: of the compute times.
        delay: in adapt while combine, how many steps before an exchange is used it was begun; 1: in the same.
        topology: whose rounds between pairs of hosts travel by shards, if it has such.

    Attributes:
        step: steps taken.

    Raises:
        SettingsError: the cluster is described for other workers, or the delay is below 1.
    """

    def __init__(
        self,
        cluster: Cluster,
        workers: int,
        seed: int = 0,
        delay: int = 1,
        topology: Topology | None = None,
    ) -> None:
        cluster.check(workers)
        if delay < 1:
            raise out_of_range("delay", delay, "1 or more", "1 is an exchange behind the step that uses it")
        self.step = 0
        self._cluster = cluster
        self._seed = seed
        self._links = Links(cluster, workers)
        self._shards = {} if topology is None else sharded(topology)
        self._times: Vector = np.zeros(workers)
        self._arrived: Vector = np.zeros(workers)  # end of each worker's latest exchange
        self._begins: deque[Vector] = deque([self._times], maxlen=delay)  # of the latest steps, this one last
        self._costs: OrderedDict[tuple[int, bool], tuple[Round, Costs]] = OrderedDict()

    @property
    def workers(self) -> int:
        """Number of workers, ``W``."""
        return len(self._times)

    @property
    def seconds(self) -> float:
        """When the slowest worker begins its next step."""
        return float(self._times.max())

    @property
    def times(self) -> Tensor:
        """When each worker begins its next step, ``[W]`` in seconds; an absent one's is the slowest one's."""
        return torch.from_numpy(self._times.copy())

    def advance(
        self,
        round: Round,
        order: str,
        sent_bytes: float = 0.0,
        coded: bool = False,
        absent: Collection[int] = (),
    ) -> None:
        """Take one step.

        Args:
            round: the round whose average enters in this step.
            order: ``"awc"``, ``"atc"`` or ``"cta"``.
            sent_bytes: what a worker sends in that round, on average over the workers.
            coded: whether codes travel, as messages to every receiver.
            absent: workers that take no part; the round must already be without them.

        Raises:
            SettingsError: the order is unknown, or the round has other workers.
            TopologyError: everybody is absent.
        """
        if order not in [each.value for each in Order]:
            raise unknown_name("order", order, [each.value for each in Order])
        if round.workers != self.workers:
            advice = "take the rounds of a topology for the workers of this clock"
            raise out_of_range("round.workers", round.workers, f"{self.workers}", advice)
        begin = self._times
        computing = self._cluster.seconds(self.workers, self.step, self._seed)
        if round.idle:
            after = begin + computing
        elif order == Order.AWC.value:
            # An exchange waits for the one before it: they share their links.
            begun = np.maximum(self._begins[0], self._arrived)
            self._arrived = np.maximum(self._arrived, self._arrivals(round, begun, sent_bytes, coded))
            after = np.maximum(begin + computing, self._arrived)
        elif order == Order.ATC.value:
            ready = begin + computing
            after = np.maximum(ready, self._arrivals(round, ready, sent_bytes, coded))
        else:
            after = np.maximum(begin, self._arrivals(round, begin, sent_bytes, coded)) + computing
        if absent:
            self._carry(after, frozenset(absent))
        self._times = after
        self._begins.append(after)
        self.step += 1

    def state(self) -> dict[str, Any]:
        """What :meth:`load` needs to go on from here, as plain numbers."""
        return {
            "step": self.step,
            "arrived": self._arrived.tolist(),
            "begins": [times.tolist() for times in self._begins],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        self.step = int(state["step"])
        self._arrived = np.array(state["arrived"], dtype=np.float64)
        self._begins.clear()
        self._begins.extend(np.array(times, dtype=np.float64) for times in state["begins"])
        self._times = self._begins[-1]

    def _arrivals(self, round: Round, begun: Vector, sent_bytes: float, coded: bool) -> Vector:
        costs = self._costs_of(round, coded)
        return costs.arrivals(begun, sent_bytes / costs.copies if costs.copies else 0.0)

    def _costs_of(self, round: Round, coded: bool) -> Costs:
        # By identity: hashing the weights of a thousand workers takes longer than a step. The round is kept
        # beside its costs, so that its identity stays its own.
        key = id(round), coded
        if key not in self._costs:
            shards = self._shards.get(round.key) if self._shards else None
            self._costs[key] = round, self._links.costs(round, coded, shards)
            if len(self._costs) > _KEPT:
                self._costs.popitem(last=False)
        return self._costs[key][1]

    def _carry(self, times: Vector, absent: frozenset[int]) -> None:
        """Whoever is absent comes back when the slowest of the others is there."""
        if len(absent) >= self.workers:
            raise nobody_left(self.workers)
        gone = list(absent)
        times[gone] = -np.inf
        times[gone] = times.max()
