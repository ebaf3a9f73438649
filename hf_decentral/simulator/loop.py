"""The steps of a simulated run, its measurements, and where it stops and goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Protocol

from hf_decentral.rounds import Round
from hf_decentral.simulator.lockstep import Simulation
from hf_decentral.simulator.results import Point
from hf_decentral.simulator.save import Checkpoint, patient


class Clock(Protocol):
    """Virtual time, as :class:`hf_decentral.cluster.Clock` tells it."""

    @property
    def seconds(self) -> float:
        """When the slowest worker begins its next step."""

    def advance(self, round: Round, order: str, sent_bytes: float, coded: bool) -> None:
        """Let one step pass, in whose round each worker sends so many bytes in the mean."""

    def state(self) -> dict[str, Any]:
        """What :meth:`load` needs, as plain numbers."""

    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""


@dataclass
class Loop:
    """Takes the steps of a run.

    Attributes:
        simulation: what takes a step.
        steps: how many.
        record: steps between two measurements.
        clock: virtual time, or None.
        progress: told the number of steps taken, after each.
        checkpoint: where to keep how far the run is, or None.
        points: the measurements so far.
        seconds: what each step took here.
    """

    simulation: Simulation
    steps: int
    record: int
    clock: Clock | None = None
    progress: Callable[[int], None] | None = None
    checkpoint: Checkpoint | None = None
    points: list[Point] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def step_seconds(self) -> float:
        """Median time of a step, measurements left out."""
        return median(self.seconds) if self.seconds else 0.0

    def run(self) -> None:
        """Take all steps that are left.

        Raises:
            DecentralizedError: numbers that are not finite.
            CheckpointError: the checkpoint cannot be written.
            KeyboardInterrupt: as ever; what was reached is written before.
        """
        if self.checkpoint is None:
            self._run(lambda: None)
            return
        try:
            with patient() as answer:
                self._run(answer)
        except KeyboardInterrupt:
            if self.simulation.whole:
                self.checkpoint.write(self.state())
            raise

    def _run(self, answer: Callable[[], None]) -> None:
        simulation = self.simulation
        while True:
            begun = perf_counter()
            train_loss = simulation.compute()
            computed = perf_counter() - begun
            step = simulation.done
            if (step % self.record == 0 or step == self.steps) and not self._measured(step):
                self.points.append(self._measure(train_loss))
            if step == self.steps:
                return
            begun = perf_counter()
            simulation.step()
            self.seconds.append(computed + perf_counter() - begun)
            if self.clock is not None:
                self._advance(self.clock, step)
            if self.progress is not None:
                self.progress(simulation.done)
            if self.checkpoint is not None and self.checkpoint.due:
                self.checkpoint.write(self.state())
            answer()

    def _measured(self, step: int) -> bool:
        """Whether a run that was stopped in a measured step has told it already."""
        return bool(self.points) and self.points[-1].step == step

    def _measure(self, train_loss: float) -> Point:
        simulation = self.simulation
        loss, accuracy = simulation.evaluate()
        # The distance first: it waits for what is on the wire, whose bytes are then known.
        distance = simulation.handle.distance()
        return Point(
            step=simulation.done,
            train_loss=train_loss,
            loss=loss,
            accuracy=accuracy,
            consensus_distance=distance,
            sent_bytes=simulation.sent_bytes,
            seconds=None if self.clock is None else self.clock.seconds,
        )

    def _advance(self, clock: Clock, step: int) -> None:
        """Let the virtual time of a step pass: that of the round whose average came in it."""
        handle = self.simulation.handle
        begun = step - handle.plan.late_by
        round, bytes_, coded = self.simulation.transport.round_of(begun)
        clock.advance(round or Round.identity(handle.workers), handle.plan.order.value, bytes_, coded)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            "simulation": self.simulation.state(),
            "points": [asdict(point) for point in self.points],
            "step_seconds": self.step_seconds,
            "clock": None if self.clock is None else self.clock.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        self.simulation.load(state["simulation"])
        self.points = [Point(**point) for point in state["points"]]
        if self.clock is not None and state["clock"] is not None:
            self.clock.load(state["clock"])
