"""One averaging of one bucket under way: drives the generator of a method over a transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from hf_decentral.averaging import Exchange, State
from hf_decentral.errors import PeerLost
from hf_decentral.errors.averaging import too_many_in_flight
from hf_decentral.optim.plan import Plan
from hf_decentral.optim.schedule import Schedule
from hf_decentral.transport import Pending, Send, Transport


class Phase(Enum):
    """Where the round of a step stands."""

    READY = "the round of this step has not begun"
    IN_FLIGHT = "it is on the wire"
    COMBINED = "it is done, the local step is next"


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


class _Late(NamedTuple):
    """An exchange that travels for several steps, while the parameters move on."""

    flight: Flight
    x: Tensor
    arrived: Tensor
    state: State
    due: int


class Flights:
    """The averagings of all buckets of one optimizer.

    Args:
        plan: the averaging method, and for how long an exchange travels.
        transport: what carries the numbers.
        schedule: tells the round of a step, for which it may have to wait.

    Attributes:
        lost: the error with which the exchanges came to an end.
    """

    def __init__(self, plan: Plan, transport: Transport, schedule: Schedule) -> None:
        self._plan = plan
        self._method = plan.method
        self._transport = transport
        self._schedule = schedule
        self._flights: dict[int, Flight] = {}
        self._late: dict[int, _Late] = {}
        self._steps: dict[int, int] = {}  # by lane: some buckets leave for a round before others have landed
        self.lost: PeerLost | None = None

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """An exchange that failed once is not waited for again: every later wait tells the same error."""
        if self.lost is not None:
            raise self.lost
        try:
            yield
        except PeerLost as error:
            self.lost = error
            raise

    def depart(self, lane: int, x: Tensor, state: State, step: int) -> None:
        """Begin the exchange of one bucket in the round of a step."""
        with self._failing():
            if self._plan.late:
                self._depart_late(lane, x, state, step)
            else:
                self._flights[lane] = self._begin(x, state, step, lane)

    def _begin(self, x: Tensor, state: State, step: int, lane: int) -> Flight:
        exchange = self._method(x, self._schedule(step), state)
        return Flight(exchange, x, self._transport, step, lane, self._method.background)

    def _depart_late(self, lane: int, x: Tensor, state: State, step: int) -> None:
        """What travels is a copy, which a checkpoint holds: after loading it is sent again."""
        self._steps[lane] = step
        if lane in self._late:
            if not self._schedule(step).idle:  # one that no plan could foresee
                raise too_many_in_flight(self._plan.topology.name, self._plan.delay or 0)
            return
        if state.get("begun") is None:
            if self._schedule(step).idle:
                return
            state["begun"] = step
            state["snapshot"] = x.clone() if "snapshot" not in state else state["snapshot"].copy_(x)
        begun, sent = int(state["begun"]), state["snapshot"]
        if "travelling" not in state.scratch:
            state.scratch["travelling"] = torch.empty_like(sent)
        arrived = state.scratch["travelling"].copy_(sent)
        flight = self._begin(arrived, state, begun, lane)
        self._late[lane] = _Late(flight, x, arrived, state, begun + self._plan.late_by)

    def finish(self, lane: int) -> None:
        """Wait for one bucket, if it is time, and write the average to it."""
        with self._failing():
            self._finish(lane)

    def _finish(self, lane: int) -> None:
        if lane in self._flights:
            self._flights.pop(lane).finish()
        elif lane in self._late and self._steps[lane] >= self._late[lane].due:
            self._land(self._late.pop(lane))

    def _land(self, late: _Late) -> None:
        late.flight.finish()
        sent = late.state["snapshot"]
        if self._method.land is not None:
            self._method.land(late.x, late.arrived, sent, late.state)
        else:
            late.x.add_(late.arrived.sub_(sent))
        late.state["begun"] = None

    def finish_all(self) -> None:
        """The same for all of them."""
        with self._failing():
            for lane in sorted({*self._flights, *self._late}):
                self._finish(lane)
            self._schedule.read()

    def settle(self, lanes: Iterable[int] | None = None) -> None:
        """Wait until nothing (of these buckets) is on the wire, and apply nothing."""
        with self._failing():
            for lane in [*self._flights, *self._late] if lanes is None else lanes:
                if lane in self._flights:
                    self._flights[lane].settle()
                elif lane in self._late:
                    self._late[lane].flight.settle()
            self._schedule.settle()

    def drop(self) -> None:
        """Let what is on the wire arrive, and forget it."""
        self.settle()
        self._flights, self._late = {}, {}
