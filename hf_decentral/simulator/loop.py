"""The steps of a simulated run, its measurements, and where it stops and goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Protocol

from hf_decentral.cluster import Clock
from hf_decentral.simulator.results import Point
from hf_decentral.simulator.save import Checkpoint, patient


class Simulated(Protocol):
    """Workers that train, in lock step or each at its own pace."""

    done: int
    whole: bool

    @property
    def seconds(self) -> float | None:
        """Virtual time, where it has one of its own."""

    @property
    def sent_bytes(self) -> float:
        """Bytes that a worker has sent so far, mean over the workers."""

    def compute(self) -> float:
        """The mean loss of the workers on their next batches."""

    def step(self) -> None:
        """Take one step of all workers."""

    def evaluate(self) -> tuple[float, float | None]:
        """Validation loss and accuracy of the mean of the workers."""

    def distance(self) -> float:
        """Consensus distance."""

    def pass_time(self, clock: Clock) -> None:
        """Let the virtual time of the latest step pass."""

    def state(self) -> dict[str, Any]:
        """What :meth:`load` needs to go on from here."""

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

    simulation: Simulated
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
                simulation.pass_time(self.clock)
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
        distance = simulation.distance()
        return Point(
            step=simulation.done,
            train_loss=train_loss,
            loss=loss,
            accuracy=accuracy,
            consensus_distance=distance,
            sent_bytes=simulation.sent_bytes,
            seconds=simulation.seconds if self.clock is None else self.clock.seconds,
        )

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            "simulation": self.simulation.state(),
            "points": [asdict(point) for point in self.points],
            "clock": None if self.clock is None else self.clock.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        self.simulation.load(state["simulation"])
        self.points = [Point(**point) for point in state["points"]]
        if self.clock is not None and state["clock"] is not None:
            self.clock.load(state["clock"])
