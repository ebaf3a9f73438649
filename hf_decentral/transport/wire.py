"""What an averaging method may ask of a transport, and what it gets back.

A seam one method wide: :class:`Transport` moves the numbers of a round, either between processes or inside
one process, and knows nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor

from hf_decentral.codecs import Codec
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology

T = TypeVar("T")


@dataclass(frozen=True)
class Send:
    """Send a payload along a round; the answer is ``sum_j w_ij payload_j`` for every worker here.

    Attributes:
        round: who hears whom, with which weight.
        payload: ``[W, P]``, one row for each worker of this process. It is not copied: nobody may write
            to it before the exchange is settled.
        into: where the sum may be written, ``payload`` itself included. Without it the sum lies in a
            receive buffer of the transport and is valid until the next exchange on the same lane.
        codec: what made ``payload``, then ``[W, size]`` bytes; the sum is that of the decoded vectors, and is
            written to ``into``, which must be given.
    """

    round: Round
    payload: Tensor
    into: Tensor | None = None
    codec: Codec | None = None


class Pending(Protocol):
    """An exchange under way. It carries the round it was begun with."""

    round: Round

    def settle(self) -> None:
        """Wait until everything was sent and received; the payload may be written to afterwards.

        Raises:
            PeerLost: a worker sent nothing within the deadline, or its connection broke.
        """

    def result(self) -> Tensor:
        """Settle, then return the weighted sums, ``[W, P]``."""


class Transport(Protocol):
    """Moves the tensors of a round among ``workers`` workers, of which ``local`` live in this process.

    Attributes:
        workers: number of workers of the whole run.
        local: the workers of this process; row ``k`` of a payload belongs to worker ``local[k]``.
        sent_bytes: what each worker of this process has sent so far, on average, in bytes.
        waited_seconds: how long this process stood still for exchanges that had not arrived.
    """

    workers: int
    local: tuple[int, ...]
    sent_bytes: float

    @property
    def waited_seconds(self) -> float:
        """See the attributes above."""

    def prepare(self, topology: Topology) -> None:
        """Open what the rounds of a topology need. Collective."""

    def start(self, request: Send, step: int, lane: int) -> Pending:
        """Begin an exchange and return at once.

        Args:
            request: what to send along which round.
            step: number of the round; messages of different rounds are never taken for each other.
            lane: messages of different lanes (buckets) are never taken for each other either.
        """

    def behind(self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin some work behind the computing, exchanges included, in the order in which it is given.

        Returns:
            A function that waits for the work and gives its result, or raises its error.
        """

    def average_(self, tensor: Tensor) -> Tensor:
        """Replace every row of ``[W, ...]`` by the mean over all workers. Collective, blocking."""

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor (no worker axis) by worker 0's. Collective, blocking."""

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, in the order of workers. Collective, blocking."""

    def close(self, step: int) -> None:
        """Tell the others that this process ends after ``step`` steps, of its own will."""
