"""The runs of a simulation, one after the other: kept as they end, skipped where they were kept before."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, NamedTuple

from tqdm import tqdm

from hf_decentral.cli.output import errors
from hf_decentral.cli.simulate_plan import Combination, combinations, identity
from hf_decentral.cli.simulate_settings import Settings
from hf_decentral.cli.simulate_store import Store
from hf_decentral.errors import CheckpointError, DataError, DecentralizedError, SettingsError, TopologyError
from hf_decentral.simulator import Problem, footprint, problems, simulate


class Outcome(NamedTuple):
    """What a simulation came to, as plain keys.

    Attributes:
        runs: as ``Run.as_dict()`` gives them, and the problem's ``optimum`` (None where nobody knows it).
        refused: ``algorithm``, ``topology``, ``workers``, ``skew``, ``lr``, ``seed`` (None: all of them) and
            ``reason`` of what could not run.
    """

    runs: list[dict[str, Any]]
    refused: list[dict[str, Any]]


class Runner:
    """Makes the runs of a simulation.

    Args:
        settings: what is asked for, checked.
        store: where finished runs are kept.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._problem: tuple[int, Problem] | None = None  # of the seed that runs: data may be large

    def run(self) -> Outcome:
        """Make all runs; what cannot run is told in the outcome and does not stop the others.

        Raises:
            SettingsError: there is no such problem, or a run cannot be kept.
            DataError: the problem has no data.
            CheckpointError: the checkpoint of the run that was stopped cannot be read, or none be written.
        """
        outcome = Outcome([], [])
        never: set[Combination] = set()  # without their seeds
        planned = combinations(self._settings)
        with tqdm(planned, desc="runs", unit="run", disable=None) as bar:
            for number, combination in enumerate(bar, 1):
                run = self._kept(combination)
                if run is not None:
                    outcome.runs.append(run)
                    continue
                if replace(combination, seed=0) in never:
                    continue
                try:
                    made = self._made(combination)
                except (CheckpointError, DataError):
                    raise
                except DecentralizedError as error:
                    # These two are about what was asked for, with whatever seed.
                    always = isinstance(error, SettingsError | TopologyError)
                    seed = None if always else combination.seed
                    outcome.refused.append({**asdict(combination), "seed": seed, "reason": str(error)})
                    if always:
                        never.add(replace(combination, seed=0))
                    _log(f"{number}/{len(planned)} {combination}: could not run")
                else:
                    outcome.runs.append(self._store.write(identity(self._settings, combination), made))
                    _log(f"{number}/{len(planned)} {combination}: loss {made['loss']:.4g}")
        return outcome

    def _kept(self, combination: Combination) -> dict[str, Any] | None:
        about = identity(self._settings, combination)
        return self._store.read(about) if self._settings.resume else None

    def _made(self, combination: Combination) -> dict[str, Any]:
        """Make a run, from its checkpoint on if there is one."""
        settings, about = self._settings, identity(self._settings, combination)
        # Making a problem that fits nowhere would take minutes, and memory of its own.
        footprint.check_least(combination.workers, settings.dim or 1)
        problem = self._problem_of(combination.seed)
        if not settings.resume:
            self._store.forget(about)
        with tqdm(total=settings.steps, desc=str(combination), leave=False, disable=None) as bar:
            run = simulate(
                problem,
                combination.algorithm,
                combination.topology,
                combination.workers,
                steps=settings.steps,
                lr=combination.lr,
                seed=combination.seed,
                averaging=settings.averaging,
                order=settings.order,
                period=settings.period,
                skew=combination.skew,
                record=settings.record,
                cluster=settings.cluster,
                deaths=settings.leaving,
                joins=settings.coming,
                progress=lambda done: bar.update(done - bar.n) and None,
                save=self._store.checkpoint(about),
                batch=settings.batch,
                nan=settings.nan,
            )
        # The names that were asked for: those by which runs are put together.
        return {**run.as_dict(), **asdict(combination), "optimum": problem.optimum}

    def _problem_of(self, seed: int) -> Problem:
        if self._problem is None or self._problem[0] != seed:
            self._problem = None
            self._problem = seed, problems.build(self._settings.problem, self._settings.dim, seed)
        return self._problem[1]


def _log(line: str) -> None:
    """What a file of messages has in place of progress bars."""
    if not errors.is_terminal:
        errors.print(line, markup=False, soft_wrap=True)
