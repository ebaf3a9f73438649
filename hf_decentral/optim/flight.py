"""One averaging of one bucket under way: drives the generator of a method over a transport."""

from __future__ import annotations

from torch import Tensor

from hf_decentral.averaging import Exchange
from hf_decentral.transport import Pending, Transport


class Flight:
    """One averaging of one bucket under way.

    Args:
        exchange: the method's generator, not yet started.
        x: the bucket, ``[W, P]``; it holds the result after :meth:`finish`.
        transport: what carries the numbers.
        step: number of the round.
        lane: number of the bucket.
    """

    def __init__(self, exchange: Exchange, x: Tensor, transport: Transport, step: int, lane: int) -> None:
        self._exchange = exchange
        self._x = x
        self._transport = transport
        self._step = step
        self._lane = lane
        self._pending: Pending = transport.start(next(exchange), step, lane)

    def settle(self) -> None:
        """Wait until nothing of the present phase is on the wire, and apply nothing."""
        self._pending.settle()

    def finish(self) -> None:
        """Wait for all phases and write the average to the bucket."""
        while True:
            try:
                request = self._exchange.send(self._pending.result())
            except StopIteration as done:
                result: Tensor = done.value
                break
            self._pending = self._transport.start(request, self._step, self._lane)
        if result is not self._x:
            self._x.copy_(result)
