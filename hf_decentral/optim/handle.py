"""The handle of a decentralized optimizer: begin an exchange, finish it, and know where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hf_decentral.errors.parameters import between_rounds, retired, step_while_averaged, written_in_flight
from hf_decentral.optim import consensus, registry
from hf_decentral.optim.bucket import Buckets, Name
from hf_decentral.optim.flight import Flights, Phase
from hf_decentral.optim.local import Rates, adjust
from hf_decentral.optim.memories import Memories
from hf_decentral.optim.plan import Order, Plan
from hf_decentral.optim.renewal import Wire, renewed
from hf_decentral.optim.schedule import Schedule
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.transport import Transport


class Gossip:
    """What stands behind ``gossip(optimizer)``.

    Args:
        params: gives the trainable parameters, in an order that is the same on every worker.
        rates: the learning rates.
        name: how to call a parameter in a message.
        transport: what carries the numbers.
        plan: how to gossip.

    Attributes:
        step: optimizer steps taken; also the number of the round that averages the present parameters.
        skipped: local updates that were dropped because a gradient was not finite.
        rates: the learning rates of the local step.
        flights: the exchanges under way; ``flights.lost`` is the error with which they came to an end.
        loss: the latest loss of each worker here, for the methods that look at it; ``[W]``.
    """

    def __init__(
        self, params: Callable[[], list[Tensor]], rates: Rates, name: Name, transport: Transport, plan: Plan
    ) -> None:
        self.step = 0
        self.skipped = 0
        self.transport = transport
        self.loss: Tensor | None = None
        self._params = params
        self.rates = rates
        self._name = name
        self._wire = Wire(transport, name, plan.bucket_mb)
        self._phase = Phase.READY
        self._buckets: Buckets | None = None
        self._equal: dict[int, Tensor] = {}
        self._ahead: set[int] = set()
        self._away = False
        self._retired = False
        self.follow(plan)
        registry.register(self)

    def follow(self, plan: Plan) -> None:
        """Gossip as a plan says; for another than the first one call :func:`hf_decentral.optim.replan`."""
        self.plan = plan
        self._alone = self.workers == 1 and not plan.method.single
        self._schedule = Schedule(plan.topology, self.transport)
        self.flights = Flights(plan, self.transport, self._schedule)
        self._memories = Memories(plan.method, plan.topology, self.transport.local, plan.late)
        if self._buckets is not None:
            self._memories.fit(self._buckets)

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.transport.workers

    @property
    def worker(self) -> int:
        """Number of this worker (of the first one here)."""
        return self.transport.local[0]

    @property
    def topology(self) -> Topology:
        """Who averages with whom."""
        return self.plan.topology

    @property
    def round(self) -> Round:
        """The round that averages the present parameters."""
        return self._schedule.peek(self.step)

    @property
    def sent_bytes(self) -> float:
        """Bytes of parameters that this worker has sent so far."""
        return self.transport.sent_bytes

    @property
    def waited_seconds(self) -> float:
        """Seconds that this worker has stood still for its neighbours so far."""
        return self.transport.waited_seconds

    def before_step(self) -> None:
        """Finish and combine, so that the local step starts from the average."""
        if self._away:
            raise step_while_averaged()
        if self._retired:
            raise retired()
        if not self._alone:
            stale = self.plan.order is Order.AWC and self._phase is not Phase.COMBINED
            if self.plan.order is not Order.ATC:
                self.combine()
            buckets = self._refit()
            for lane, state in enumerate(self._memories.states):
                adjust(self.plan.method, buckets, lane, state, stale)

    def after_step(self) -> None:
        """Begin the next round; adapt-then-combine finishes its own at once."""
        if self._alone:
            self.step += 1
        elif self.plan.order is Order.ATC:
            self._begin(self.step)
            self.flush()
            self.step += 1
            self._phase = Phase.READY
        else:
            self._begin(self.step + 1)

    def steady(self) -> Buckets | None:
        """The buckets, where the round of this step is on the wire and no parameter came, went or moved."""
        ready = self._phase is Phase.IN_FLIGHT and self.plan.order is Order.AWC
        if not ready or self._away or self._retired or self._buckets is None:
            return None
        return self._buckets if self._buckets.fits(self._params()) else None

    def land(self, lane: int) -> None:
        """Finish one bucket, so that the local step of its parameters starts from the average."""
        buckets = self._bound()
        self._unwritten(buckets, lane)
        self.flights.finish(lane)
        adjust(self.plan.method, buckets, lane, self._memories.states[lane], stale=True)

    def leave(self, lane: int) -> None:
        """Send one bucket along the next round; :meth:`after_step` sends the others."""
        self._depart(self._bound(), lane, self.step + 1)
        self._ahead.add(lane)

    def combine(self) -> None:
        """See that the present parameters are averaged with the neighbours', once."""
        if self._alone or self._away:
            return
        with torch.inference_mode(False), torch.no_grad():  # what is kept must serve in training too
            if self._phase is Phase.READY:
                self._begin(self.step)
            self.flush()

    def flush(self) -> None:
        """Finish what is on the wire and combine it; the parameters may then be changed by anybody.

        Raises:
            PeerLost: a neighbour sent nothing within the deadline.
            ParameterError: a parameter was written to meanwhile.
        """
        if self._phase is Phase.IN_FLIGHT:
            if self._ahead:
                raise between_rounds()
            self._unwritten(self._bound())
            self.flights.finish_all()
            self._phase = Phase.COMBINED

    def _unwritten(self, buckets: Buckets, lane: int | None = None) -> None:
        if (written := buckets.written(lane)) is not None:
            raise written_in_flight(self._name(written))

    def settle(self, lanes: Iterable[int] | None = None) -> None:
        """Wait until nothing (of these buckets) is on the wire; what came is combined by the next step."""
        self.flights.settle(lanes)

    def discard(self) -> None:
        """Let what is on the wire arrive and drop it: for those who load other parameters next."""
        self.flights.drop()
        self._ahead.clear()
        if self._phase is Phase.IN_FLIGHT:
            self._phase = Phase.READY

    @torch.no_grad()
    def distance(self) -> float:
        """Consensus distance: root mean square over the workers of ``||x_i - mean||``. Collective."""
        return 0.0 if self._alone else consensus.distance(self.flats(), self.transport)

    def averaged(self, model: nn.Module) -> AbstractContextManager[nn.Module]:
        """See :func:`hf_decentral.optim.averaged`. Collective."""
        return consensus.averaged(model)

    @torch.no_grad()
    def unite(self, model: nn.Module) -> None:
        """Give every worker the mean of all, for good: parameters and float buffers. Collective."""
        if not self._alone:
            self.flush()
            consensus.unite(self.flats(), model, self.transport)
            self.discard()
            self._memories.begin_anew(self._bound())

    def flats(self) -> list[Tensor]:
        """The buckets ``[W, P]`` with nothing on the wire. The handle's owner may read them."""
        self.settle()
        with torch.inference_mode(False), torch.no_grad():
            return self._bound().flats

    @contextmanager
    def away(self) -> Iterator[None]:
        """While the parameters are not this worker's own, no step may be taken."""
        before, self._away = self._away, True
        try:
            yield
        finally:
            self._away = before

    def know(self, params: list[Tensor]) -> None:
        """Remember which parameters the workers have agreed on and made equal."""
        self._equal.update((id(p), p) for p in params)

    def retire(self) -> None:
        """Another optimizer trains these parameters from now on."""
        self.discard()
        self._retired = True
        registry.forget(self)

    def owns(self, params: set[int]) -> bool:
        """True where one of these parameters (by ``id``) is exchanged here."""
        own = self._params() if self._buckets is None else self._buckets.params
        return not self._alone and any(id(p) in params for p in own)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold for the rounds to go on where they were; read on one worker alone."""
        return {
            "step": self.step,
            "combined": (combined := self._phase is Phase.COMBINED),
            "schedule": self._schedule.state(self.step, combined),
            "topology": self.plan.topology.name,
            "averaging": self.plan.averaging,
            "bucket_mb": self.plan.bucket_mb,
            "delay": self.plan.delay,
            "states": self._memories.state(),
            "skipped": self.skipped,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken: the round is begun again at the next step."""
        self.discard()
        self.step = int(state.get("step", 0))
        self.skipped = int(state.get("skipped", 0))
        self._schedule.load(state.get("schedule", {}))
        self._memories.load(state.get("states"))
        if self._buckets is not None and not self._memories.anew:
            self._memories.fit(self._buckets)
        self._phase = Phase.COMBINED if state.get("combined") else Phase.READY

    def _begin(self, step: int) -> None:
        """Start to send the present parameters, where they were not sent ahead; return at once."""
        buckets = self._bound()
        for lane in range(len(buckets.flats)):
            if lane not in self._ahead:
                self._depart(buckets, lane, step)
        self._ahead.clear()
        self._schedule.look(buckets.flats, step)
        self.step, self._phase = step, Phase.IN_FLIGHT

    def _depart(self, buckets: Buckets, lane: int, step: int) -> None:
        """Begin the exchange of one bucket."""
        state = self._memories.states[lane]
        if self.plan.method.informed:
            state.local.loss, state.local.rate = self.loss, self.rates.of(buckets, lane, step)
        self.flights.depart(lane, buckets.flats[lane], state, step)
        buckets.mark(lane)

    def _bound(self) -> Buckets:
        """The buckets, with every parameter in its place."""
        if self._buckets is not None and self._phase is Phase.IN_FLIGHT:
            return self._buckets
        return self._refit()

    def _refit(self) -> Buckets:
        """See that the buckets hold what is to be exchanged now.

        Workers agree when the buckets are made and whenever parameters came or went (a new group, a frozen
        layer), which they must do together; see :func:`renewed`.
        """
        params = self._params()
        if self._buckets is not None and self._buckets.fits(params):
            self._buckets.adopt()
            self._memories.meet(self._buckets, self.transport)
            return self._buckets
        if self.plan.late:
            self.flights.drop()
        self._buckets = renewed(params, self._buckets, self._equal, self._memories, self._wire)
        self.know(params)
        return self._buckets
