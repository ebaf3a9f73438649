"""The one call that simulates a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypedDict

from typing_extensions import Unpack

from hf_decentral import algorithms
from hf_decentral.algorithms import Algorithm
from hf_decentral.cluster import Clock, Cluster, Members
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.simulator import problems
from hf_decentral.simulator.asynchronous import Asynchronous
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.lockstep import Simulation
from hf_decentral.simulator.loop import Loop
from hf_decentral.simulator.results import Point, Run
from hf_decentral.simulator.save import Checkpoint
from hf_decentral.simulator.setup import Setup
from hf_decentral.topology.base import Topology

POINTS = 50
"""Measurements of a run, where nobody says otherwise."""

PACE = Cluster("gaussian(1, 0.1)")
"""Compute times of workers without a global step, where nobody says otherwise."""

NAN = ("stop", "skip")


class Changes(TypedDict, total=False):
    """What may stand in the place of an algorithm's own; None leaves it."""

    lr: float | None
    averaging: str | None
    order: str | None
    period: int | None


def simulate(
    problem: str | Problem,
    algorithm: str | Algorithm = "dadam",
    topology: str | Topology = "ring",
    workers: int = 16,
    *,
    steps: int = 500,
    seed: int = 0,
    skew: float | None = None,
    batch: int | None = None,
    nan: str = "stop",
    record: int | None = None,
    cluster: Cluster | None = None,
    deaths: Mapping[int, float] | None = None,
    joins: Mapping[int, float] | None = None,
    progress: Callable[[int], None] | None = None,
    save: Path | None = None,
    **changes: Unpack[Changes],
) -> Run:
    """Train with many workers in this process, by the code that trains on many machines; see :class:`Run`.

    Args:
        problem, algorithm, topology: names, or your own; the topology, where the algorithm does not say.
        workers, steps: how many of each; all workers take a step together.
        seed: of shards and batches, and of a problem given by name.
        skew: alpha of Dirichlet-skewed shards (0.1 is strong); None: random parts.
        batch: samples of each worker in each step, in the place of the problem's.
        nan: ``"stop"`` where a worker's gradient is not finite, or ``"skip"``: put zeros in its place.
        record: steps between two measurements; None: :data:`POINTS` in all.
        cluster: compute times and links, so that there is virtual time too.
        deaths, joins: when a worker leaves or comes: in steps, or seconds if there is no global step.
        progress: called with the number of steps taken, after each.
        save: a file that keeps how far the run is; called again with it, the run goes on from there.
        changes: ``lr``, ``averaging``, ``order``, ``period`` in the place of the algorithm's.

    Raises:
        SettingsError, TopologyError, DataError, ParameterError: something that cannot be run.
        DecentralizedError: numbers that are not finite.
        CheckpointError: the file belongs to another run, or cannot be written.
    """
    made = problems.build(problem, seed=seed) if isinstance(problem, str) else problem
    size = made.batch if batch is None else batch
    every = max(1, steps // POINTS) if record is None else record
    _check({"workers": workers, "steps": steps, "batch": size, "record": every}, seed, nan)
    members = Members(workers, deaths or {}, joins or {}) if deaths or joins else None
    chosen = _algorithm(algorithm, dict(changes))
    setup = Setup(made, chosen, topology, workers, size, seed, skew, nan == "skip", members)
    checkpoint = None if save is None else Checkpoint(save, _about(setup, steps, every, cluster))
    return _run(setup, cluster, steps, every, progress, checkpoint)


def _run(
    setup: Setup,
    cluster: Cluster | None,
    steps: int,
    record: int,
    progress: Callable[[int], None] | None,
    checkpoint: Checkpoint | None,
) -> Run:
    kept = None if checkpoint is None else checkpoint.load()
    if kept is not None and "run" in kept:
        return Run(**{**kept["run"], "points": tuple(Point(**each) for each in kept["run"]["points"])})
    simulation, clock = _simulation(setup, cluster, None if kept is None else kept["simulation"]["chunk"])
    loop = Loop(simulation, steps, record, clock, progress, checkpoint)
    if kept is not None:
        loop.load(kept)
        del kept
    loop.run()
    run = Run(
        problem=setup.problem.name,
        algorithm=_name(setup.algorithm),
        topology=simulation.topology.name,
        workers=setup.workers,
        seed=setup.seed,
        steps=steps,
        skew=setup.skew,
        lr=setup.algorithm.lr,
        averaging=setup.algorithm.averaging,
        step_seconds=loop.step_seconds,
        skipped=simulation.skipped,
        points=tuple(loop.points),
    )
    if checkpoint is not None:
        checkpoint.write({"run": asdict(run)})
    return run


def _simulation(
    setup: Setup, cluster: Cluster | None, chunk: int | None
) -> tuple[Simulation | Asynchronous, Clock | None]:
    """What takes the steps, and the clock of one in lock step."""
    if setup.algorithm.alone:
        return Asynchronous(setup, cluster or PACE, chunk), None
    simulation = Simulation(setup, chunk)
    if cluster is None:
        return simulation, None
    plan = simulation.handle.plan
    delay = plan.late_by + 1
    return simulation, Clock(cluster, setup.workers, setup.seed, delay, simulation.topology)


def _algorithm(given: str | Algorithm, changes: dict[str, Any]) -> Algorithm:
    chosen = algorithms.build(given) if isinstance(given, str) else given
    chosen = chosen.every(changes.pop("period", None))
    return replace(chosen, **{name: value for name, value in changes.items() if value is not None})


def _name(algorithm: Algorithm) -> str:
    """The name of an algorithm in the table, whatever numbers were changed; else what it says of itself."""
    for name, known in algorithms.TABLE.items():
        if (known.summary, known.source) == (algorithm.summary, algorithm.source):
            return name
    return algorithm.summary


def _check(whole: dict[str, int], seed: int, nan: str) -> None:
    for name, value, least in (*((name, value, 1) for name, value in whole.items()), ("seed", seed, 0)):
        if not isinstance(value, int) or value < least:
            raise out_of_range(name, value, f"a whole number, {least} or more", "correct it")
    if nan not in NAN:
        raise unknown_name("answer to NaN", nan, NAN)


def _about(setup: Setup, steps: int, record: int, cluster: Cluster | None) -> dict[str, Any]:
    """What determines a run, as plain names and numbers."""
    problem, algorithm, topology = setup.problem, setup.algorithm, setup.topology
    parameters = [p.detach().double() for p in problem.model.parameters()]
    return {
        "problem": problem.name,
        "parameters": sum(p.numel() for p in parameters),
        "start": float(sum(p.norm() for p in parameters)),
        "samples": problem.samples,
        **{each.name: repr(getattr(algorithm, each.name)) for each in fields(algorithm)},
        "asked topology": topology if isinstance(topology, str) else repr([r.key for r in topology.rounds()]),
        "workers": setup.workers,
        "steps": steps,
        "batch": setup.batch,
        "seed": setup.seed,
        "skew": setup.skew,
        "nan": "skip" if setup.skip else "stop",
        "record": record,
        "cluster": repr(cluster),
        "members": repr(setup.members),
    }
