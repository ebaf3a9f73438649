"""What an averaging method is.

A method is a generator over one bucket: it yields what is to travel, gets back what came, and returns the new
parameters. What stands between its first step and its end happens behind the computing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from hf_decentral.codecs import Span
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.transport.wire import Send


@dataclass
class Local:
    """What a method may know of the workers here and of their local step.

    Attributes:
        workers: their numbers, one for each row.
        rate: the learning rate: one number, or ``[P]`` where groups of parameters differ.
        loss: the latest loss of each, ``[W]``, where somebody told it.
        stale: the gradients of the step at hand were taken before the average came.
    """

    workers: tuple[int, ...] = (0,)
    rate: float | Tensor = 1.0
    loss: Tensor | None = None
    stale: bool = False


class State(dict[str, Any]):
    """What a method remembers of one bucket from round to round.

    The items are part of a checkpoint. Nothing may be written to them while an exchange is under way, so that
    beginning a round again changes nothing. ``scratch`` is memory that holds nothing between two rounds.
    ``local`` is what the engine tells of the local step before each round.
    """

    def __init__(self, items: dict[str, Any] | None = None) -> None:
        super().__init__(items or {})
        self.scratch: dict[str, Any] = {}
        self.local = Local()


class Joined:
    """Yielded by a method that runs in the background: after it, ``x`` and the state may be written to."""


Exchange = Generator["Send | Joined", Any, Tensor]


@dataclass(frozen=True)
class Averaging:
    """One averaging method. Called with ``(x, round, state)`` it gives the :data:`Exchange` of a round.

    Attributes:
        exchange: the generator over ``x [W, P]``, a round and the state.
        prepare: called as ``prepare(x, rounds, layout, state)`` while all workers hold equal parameters:
            before the first round, and when parameters came or went. ``rounds`` are those that will repeat.
            A method without it remembers nothing.
        background: run it behind the computing from its first line; see :class:`Joined`.
        repeats: it needs a topology whose rounds repeat.
        gradient: called as ``gradient(g, x, state)`` after the average and before the local step, with the
            gradients ``g [W, P]`` of a bucket, which it may change; zeros where there is none.
        land: where an exchange travels for several steps, called as ``land(x, arrived, sent, state)`` to
            bring what arrived into parameters that have moved on; None adds ``arrived - sent``.
        orders: where the average may stand relative to the local step.
        whole: it needs rounds that are the mean of all workers.
        mutual: it needs rounds in which any two workers hear each other with the same weight.
        push: it serves rounds of whose weights only the columns sum to one.
        informed: it looks at rate or loss in ``state.local``.
        single: it changes the training of one worker too, as a momentum of its own does.
        joins: a worker may come later, with parameters that it did not have before.
        delays: its exchanges may travel for several local steps.
        check_topology: called with the topology where there are several workers; raises a SettingsError where
            the method would not work on it.
        check_optimizer: the same of the optimizer that takes the local steps.
    """

    exchange: Callable[[Tensor, Round, State], Exchange]
    prepare: Callable[[Tensor, Sequence[Round], Sequence[Span], State], None] | None = None
    background: bool = False
    repeats: bool = False
    gradient: Callable[[Tensor, Tensor, State], None] | None = None
    land: Callable[[Tensor, Tensor, Tensor, State], None] | None = None
    orders: tuple[str, ...] = ("awc", "atc", "cta")
    whole: bool = False
    mutual: bool = False
    push: bool = False
    informed: bool = False
    single: bool = False
    joins: bool = True
    delays: bool = True
    check_topology: Callable[[Topology], None] | None = None
    check_optimizer: Callable[[Optimizer], None] | None = None

    @property
    def real(self) -> bool:
        """Whether it works on real numbers only: all do that remember or change something."""
        return self.prepare is not None or self.gradient is not None

    def __call__(self, x: Tensor, round: Round, state: State) -> Exchange:
        """Begin a round."""
        return self.exchange(x, round, state)
