"""The simulator's wire, which knows the bytes of each round."""

from __future__ import annotations

from hf_decentral.rounds import Round
from hf_decentral.transport import Memory, Pending, Send


class Counted(Memory):
    """A :class:`Memory` that keeps the bytes of the rounds under way apart from those before.

    What is on the wire when a run is stopped is sent again when it goes on, and must not count twice.

    Attributes:
        closed: mean bytes per worker of the rounds before the latest one.
        latest: number of the latest round.
        kept: how many rounds before the latest one :meth:`round_of` knows.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.closed = 0.0
        self.latest = -1
        self.kept = 1
        self._rounds: dict[int, tuple[Round, float, bool]] = {}

    def start(self, request: Send, step: int, lane: int) -> Pending:
        """See :meth:`Transport.start`."""
        before = self.sent_bytes
        if step > self.latest:
            self.closed, self.latest = before, step
            self._rounds = {k: v for k, v in self._rounds.items() if k >= step - self.kept}
        pending = super().start(request, step, lane)
        added = self.sent_bytes - before
        round, bytes_, coded = self._rounds.get(step, (request.round, 0.0, False))
        self._rounds[step] = round, bytes_ + added, coded or request.codec is not None
        if step < self.latest:
            self.closed += added
        return pending

    def round_of(self, step: int) -> tuple[Round | None, float, bool]:
        """The round of a step, mean bytes per worker, and whether they were codes; None: nobody sent."""
        return self._rounds.get(step, (None, 0.0, False))

    def reopen(self, closed: float) -> None:
        """Go on after a stop, with the latest round yet to be sent."""
        self.sent_bytes = self.closed = closed
        self.latest = -1
        self._rounds.clear()
