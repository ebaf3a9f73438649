"""What an averaging method is, and how one is driven.

A method is a generator over one bucket: it yields what is to travel, gets back what came, and returns the new
parameters. What stands between its first ``yield`` and its end happens behind the computing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from torch import Tensor

from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Pending, Send, Transport

State = dict[str, Any]
"""What a method remembers of one bucket from round to round; part of a checkpoint. Nothing may be written to
it before the first ``yield``, so that beginning a round again changes nothing."""

Exchange = Generator[Send, Tensor, Tensor]
Averaging = Callable[[Tensor, Round, State], Exchange]
"""``method(x [W, P], round, state)`` yields :class:`Send` and returns the averaged ``[W, P]``."""


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
