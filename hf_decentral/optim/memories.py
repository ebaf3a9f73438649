"""What an averaging method remembers of the buckets of one optimizer."""

from __future__ import annotations

from typing import Any

from hf_decentral.averaging import Averaging, State
from hf_decentral.optim.bucket import Buckets
from hf_decentral.topology.base import Topology


class Memories:
    """One :class:`State` for each bucket.

    Args:
        method: the averaging method.
        topology: whose rounds it will be called with.
    """

    def __init__(self, method: Averaging, topology: Topology) -> None:
        self._method = method
        self._topology = topology
        self.states: list[State] = []

    @property
    def forgetful(self) -> bool:
        """True where nothing is remembered, so that new buckets need no common beginning."""
        return self._method.prepare is None

    def clear(self) -> None:
        """Forget everything."""
        self.states = []

    def fit(self, buckets: Buckets) -> None:
        """Have a state for each bucket; new ones are prepared, for which all workers must be equal."""
        if len(self.states) != len(buckets.flats):
            self.states = [State() for _ in buckets.flats]
        if self._method.prepare is None:
            return
        rounds = self._topology.repeated() or ()
        for x, layout, state in zip(buckets.flats, buckets.layouts, self.states, strict=True):
            self._method.prepare(x, rounds, layout, state)

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint must hold."""
        return [dict(state) for state in self.states]

    def load(self, states: list[dict[str, Any]]) -> None:
        """Remember what :meth:`state` gave."""
        self.states = [State(items) for items in states]
