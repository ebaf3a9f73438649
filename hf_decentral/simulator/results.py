"""What a simulated run was and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        step: steps taken before it.
        train_loss: mean over the workers of the loss of each on its own next batch.
        loss: validation loss of the mean of the workers.
        accuracy: share of the validation targets that the mean gets right, where they are classes.
        consensus_distance: root mean square over the workers of ``||x_i - mean||``.
        sent_bytes: sent so far by a worker, mean over the workers.
        seconds: virtual time so far; None without a clock.
    """

    step: int
    train_loss: float
    loss: float
    accuracy: float | None
    consensus_distance: float
    sent_bytes: float
    seconds: float | None = None


@dataclass(frozen=True)
class Run:
    """A simulated run.

    Attributes:
        problem, algorithm, topology: names.
        workers: number of workers.
        seed: of shards and batches.
        steps: steps taken.
        skew: alpha of the shards; None: random parts.
        skipped: gradients that were left out because they were not finite, of all workers.
        lr: learning rate.
        averaging: what was sent.
        step_seconds: median seconds that the simulator took for one step of all workers.
        points: measurements, the last one after the last step.
    """

    problem: str
    algorithm: str
    topology: str
    workers: int
    seed: int
    steps: int
    skew: float | None
    lr: float
    averaging: str
    step_seconds: float
    skipped: int
    points: tuple[Point, ...]

    @property
    def loss(self) -> float:
        """Validation loss of the mean of the workers at the end."""
        return self.points[-1].loss

    @property
    def accuracy(self) -> float | None:
        """Accuracy of the mean of the workers at the end, where targets are classes."""
        return self.points[-1].accuracy

    @property
    def consensus_distance(self) -> float:
        """Root mean square distance of the workers from their mean at the end."""
        return self.points[-1].consensus_distance

    @property
    def sent_bytes(self) -> float:
        """Bytes sent by a worker, mean over the workers."""
        return self.points[-1].sent_bytes

    def as_dict(self) -> dict[str, Any]:
        """Plain names and numbers, the last measurement's among them."""
        last = asdict(self.points[-1])
        return {
            **asdict(self),
            **{k: v for k, v in last.items() if k != "step"},
            "points": [*map(asdict, self.points)],
        }
