"""The one call that simulates a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Protocol

from hf_decentral import algorithms
from hf_decentral.algorithms import Algorithm
from hf_decentral.errors import out_of_range
from hf_decentral.rounds import Round
from hf_decentral.simulator import problems
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.lockstep import Setup, Simulation
from hf_decentral.simulator.results import Point, Run
from hf_decentral.topology.base import Topology

POINTS = 50
"""Measurements of a run, where nobody says otherwise."""


class Clock(Protocol):
    """Virtual time."""

    seconds: float

    def advance(self, round: Round, order: str, sent_bytes: float) -> None:
        """Let one step pass, in whose round each worker sends so many bytes in the mean."""


def simulate(
    problem: str | Problem,
    algorithm: str | Algorithm = "dadam",
    topology: str | Topology = "ring",
    workers: int = 16,
    *,
    steps: int = 500,
    lr: float | None = None,
    seed: int = 0,
    averaging: str | None = None,
    order: str | None = None,
    period: int | None = None,
    skew: float | None = None,
    record: int | None = None,
    clock: Clock | None = None,
    progress: Callable[[int], None] | None = None,
    save: Path | None = None,
    batch: int | None = None,
) -> Run:
    """Train with many workers in one process, by the code that trains on many machines."""
    chosen = algorithms.build(algorithm) if isinstance(algorithm, str) else algorithm
    chosen = chosen.every(period)
    changes = {"lr": lr, "averaging": averaging, "order": order}
    chosen = replace(chosen, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
    made = problems.build(problem, seed=seed) if isinstance(problem, str) else problem
    for name, value, least in (
        ("workers", workers, 1),
        ("steps", steps, 1),
        ("batch", batch or 1, 1),
        ("seed", seed, 0),
    ):
        if not isinstance(value, int) or value < least:
            raise out_of_range(name, value, f"a whole number, {least} or more", "correct it")
    setup = Setup(made, chosen, topology, workers, batch or made.batch, seed, skew)
    simulation = Simulation(setup)
    points, seconds = _drive(simulation, steps, record or max(1, steps // POINTS), clock, progress)
    return Run(
        problem=made.name,
        algorithm=algorithm if isinstance(algorithm, str) else algorithm.summary,
        topology=simulation.handle.topology.name,
        workers=workers,
        seed=seed,
        steps=steps,
        skew=skew,
        lr=chosen.lr,
        averaging=chosen.averaging,
        step_seconds=median(seconds),
        points=tuple(points),
    )


def _drive(
    simulation: Simulation,
    steps: int,
    record: int,
    clock: Clock | None,
    progress: Callable[[int], None] | None,
) -> tuple[list[Point], list[float]]:
    points: list[Point] = []
    seconds: list[float] = []
    while True:
        step = simulation.done
        begun = perf_counter()
        train_loss = simulation.compute()
        computed = perf_counter() - begun
        if step % record == 0 or step == steps:
            points.append(measure(simulation, train_loss, clock))
        if step == steps:
            return points, seconds
        round = simulation.handle.round
        begun = perf_counter()
        simulation.step()
        seconds.append(computed + perf_counter() - begun)
        if clock is not None:
            clock.advance(round, simulation.handle.plan.order.value, simulation.transport.bytes_of(step))
        if progress is not None:
            progress(simulation.done)


def measure(simulation: Simulation, train_loss: float, clock: Clock | None = None) -> Point:
    """Where a run stands."""
    loss, accuracy = simulation.evaluate()
    return Point(
        step=simulation.done,
        train_loss=train_loss,
        loss=loss,
        accuracy=accuracy,
        consensus_distance=simulation.handle.distance(),
        sent_bytes=simulation.handle.sent_bytes,
        seconds=None if clock is None else clock.seconds,
    )
