"""The simulator's wire, which knows the bytes of each round."""

from __future__ import annotations

from hf_decentral.transport import Memory, Pending, Send


class Counted(Memory):
    """A :class:`Memory` that keeps the bytes of the rounds under way apart from those before.

    What is on the wire when a run is stopped is sent again when it goes on, and must not count twice.

    Attributes:
        closed: mean bytes per worker of the rounds before the latest one.
        latest: number of the latest round.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.closed = 0.0
        self.latest = -1
        self._rounds: dict[int, float] = {}

    def start(self, request: Send, step: int, lane: int) -> Pending:
        """See :meth:`Transport.start`."""
        before = self.sent_bytes
        if step > self.latest:
            self.closed, self.latest = before, step
            self._rounds = {k: v for k, v in self._rounds.items() if k >= step - 1}
        pending = super().start(request, step, lane)
        added = self.sent_bytes - before
        self._rounds[step] = self._rounds.get(step, 0.0) + added
        if step < self.latest:
            self.closed += added
        return pending

    def bytes_of(self, step: int) -> float:
        """Mean bytes per worker of the round of a step, one of the latest two."""
        return self._rounds.get(step, 0.0)

    def reopen(self, closed: float) -> None:
        """Go on after a stop, with the latest round yet to be sent."""
        self.sent_bytes = self.closed = closed
        self.latest = -1
        self._rounds.clear()
