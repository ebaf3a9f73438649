"""One averaging of one bucket under way: drives the generator of a method over a transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.autograd.profiler import record_function

from hf_decentral.averaging import Averaging, Exchange, State
from hf_decentral.optim.schedule import Schedule
from hf_decentral.transport import Pending, Send, Transport


class Flight:
    """One averaging of one bucket under way.

    Args:
        exchange: the method's generator, not yet started.
        x: the bucket, ``[W, P]``; it holds the result after :meth:`finish`.
        transport: what carries the numbers.
        step: number of the round.
        lane: number of the bucket.
        background: whether the method runs behind the computing from its first line.
    """

    def __init__(
        self, exchange: Exchange, x: Tensor, transport: Transport, step: int, lane: int, background: bool
    ) -> None:
        self._exchange = exchange
        self._x = x

        def start(request: Send) -> Pending:
            with record_function("hf_decentral: begin"):
                return transport.start(request, step, lane)

        self._start = start
        self._pending: Pending | None = None
        self._joined: Callable[[], None] | None = None
        if background:
            self._joined = transport.behind(self._drive)
        else:
            self._pending = self._start(_send(next(exchange)))

    def settle(self) -> None:
        """Wait until nothing of the present phase is on the wire, and apply nothing."""
        if self._joined is not None:
            self._joined()
        elif self._pending is not None:
            self._pending.settle()

    def finish(self) -> None:
        """Wait for all phases and write the average to the bucket."""
        if self._joined is not None:
            self._joined()
        if self._pending is not None:
            self._pending.settle()
        with record_function("hf_decentral: combine"):
            self._land()

    def _land(self) -> None:
        answer = self._pending.result() if self._pending is not None else None
        while True:
            try:
                request = self._exchange.send(answer)
            except StopIteration as done:
                result: Tensor = done.value
                break
            answer = self._start(_send(request)).result()
        if result is not self._x:
            self._x.copy_(result)

    def _drive(self) -> None:
        """All phases up to the point at which the method wants to write to the bucket."""
        answer = None
        while isinstance(request := self._exchange.send(answer), Send):
            answer = self._start(request).result()


def _send(request: object) -> Send:
    if not isinstance(request, Send):
        raise TypeError(f"an averaging method that runs in the foreground yields Send, not {request!r}")
    return request


class Flights:
    """The averagings of all buckets of one optimizer.

    Args:
        method: the averaging method.
        transport: what carries the numbers.
        schedule: tells the round of a step, for which it may have to wait.
    """

    def __init__(self, method: Averaging, transport: Transport, schedule: Schedule) -> None:
        self._method = method
        self._transport = transport
        self._schedule = schedule
        self._flights: dict[int, Flight] = {}

    def depart(self, lane: int, x: Tensor, state: State, step: int) -> None:
        """Begin the exchange of one bucket in the round of a step."""
        exchange = self._method(x, self._schedule(step), state)
        self._flights[lane] = Flight(exchange, x, self._transport, step, lane, self._method.background)

    def finish(self, lane: int) -> None:
        """Wait for one bucket and write the average to it."""
        self._flights.pop(lane).finish()

    def finish_all(self) -> None:
        """The same for all of them."""
        for lane in sorted(self._flights):
            self.finish(lane)
        self._schedule.read()

    def settle(self, lanes: Iterable[int] | None = None) -> None:
        """Wait until nothing (of these buckets) is on the wire, and apply nothing."""
        for lane in list(self._flights) if lanes is None else lanes:
            if lane in self._flights:
                self._flights[lane].settle()
        self._schedule.settle()

    def drop(self) -> None:
        """Forget what has arrived."""
        self._flights = {}
