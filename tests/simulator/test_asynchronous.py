"""Asynchronous pairs, members that come and go, and virtual time, in whole simulated runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hf_decentral import topology
from hf_decentral.cluster import Cluster
from hf_decentral.errors import DecentralizedError, SettingsError
from hf_decentral.simulator import Problem, problems, simulate


def quadratic() -> Problem:
    return problems.build("quadratic", dim=6, seed=1)


def above(problem: Problem, loss: float) -> float:
    """How far a loss is above the least."""
    assert problem.optimum is not None
    return loss - problem.optimum


def test_pairs_reach_what_lock_step_reaches() -> None:
    lock_step = simulate(quadratic(), "dpsgd", "ring", 6, steps=80)
    pairs = simulate(quadratic(), "ad_psgd", "ring", 6, steps=80)
    assert pairs.points[0].loss == lock_step.points[0].loss
    start, end = (above(quadratic(), loss) for loss in (pairs.points[0].loss, pairs.loss))
    assert end < 0.1 * start
    assert end == pytest.approx(above(quadratic(), lock_step.loss), abs=0.05 * start)
    assert pairs.sent_bytes > 0
    assert [p.step for p in pairs.points] == [p.step for p in lock_step.points]


def test_a_straggler_holds_nobody_up() -> None:
    """In lock step on a connected graph its pace becomes everybody's; in pairs only its own."""
    slow = Cluster("0.1", slow={2: 5.0})
    lock_step = simulate(quadratic(), "dpsgd", "ring", 6, steps=40, cluster=slow)
    pairs = simulate(quadratic(), "ad_psgd", "ring", 6, steps=40, cluster=slow)
    assert lock_step.points[-1].seconds == pytest.approx(40 * 0.5)
    seconds = pairs.points[-1].seconds
    assert seconds is not None
    assert seconds < 40 * 0.5 / 3


@pytest.mark.parametrize("stop", [7, 20])
def test_pairs_go_on_bit_for_bit_after_a_stop(tmp_path: Path, stop: int) -> None:
    whole = simulate(quadratic(), "ad_psgd", "ring", 5, steps=30, record=5)

    def interrupt(step: int) -> None:
        if step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(
            quadratic(), "ad_psgd", "ring", 5, steps=30, record=5, save=tmp_path / "run", progress=interrupt
        )
    again = simulate(quadratic(), "ad_psgd", "ring", 5, steps=30, record=5, save=tmp_path / "run")
    assert again.points == whole.points


@pytest.mark.parametrize("algorithm", ["dpsgd", "dadam", "oldsgd", "choco", "sgp", "ad_psgd"])
def test_workers_leave_and_come(algorithm: str) -> None:
    run = simulate(
        quadratic(), algorithm, "ring", 6, steps=60, deaths={1: 10, 4: 15}, joins={1: 30}, record=5, lr=0.1
    )
    assert above(quadratic(), run.loss) < 0.5 * above(quadratic(), run.points[0].loss)
    assert all(point.consensus_distance < 10 for point in run.points)


def test_the_dead_do_not_count() -> None:
    """Who is left alone is the mean, whatever the dead one does."""
    run = simulate(quadratic(), "dpsgd", "complete", 2, steps=5, deaths={1: 0}, record=1)
    assert all(point.consensus_distance == 0 for point in run.points)
    assert run.sent_bytes == 0


def test_methods_that_need_everybody_refuse_the_dead() -> None:
    with pytest.raises(SettingsError, match="all take part|mean of all workers"):
        simulate(quadratic(), "slowmo", workers=4, steps=5, deaths={3: 2})


@pytest.mark.parametrize("algorithm", ["gradient_tracking", "qg_dsgdm", "noloco"])
def test_methods_that_take_every_way_for_a_local_step_refuse_those_who_come(algorithm: str) -> None:
    with pytest.raises(SettingsError, match="oins were given"):
        simulate(quadratic(), algorithm, "ring", 8, steps=5, joins={3: 2})


def test_push_sum_keeps_its_weights_when_a_worker_dies() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.5, 0.25], [0.0, 0.25, 0.5]], dtype=torch.float64)
    rounds = topology.custom(weights, push=True)
    run = simulate(quadratic(), "sgp", rounds, 3, steps=200, deaths={2: 50}, record=50)
    assert above(quadratic(), run.loss) < 0.2 * above(quadratic(), run.points[0].loss)
    with pytest.raises(SettingsError, match="push-sum"):
        simulate(quadratic(), "dpsgd", rounds, 3, steps=5, deaths={2: 3})


def test_a_worker_with_numbers_that_are_not_finite_is_named() -> None:
    problem = quadratic()
    inputs, targets = problem.train
    some = torch.arange(len(inputs)) % 50 == 3
    broken = inputs.masked_fill(some[:, None], float("nan"))
    bad = Problem("broken", problem.model, problem.loss, (broken, targets), problem.valid)
    with pytest.raises(DecentralizedError, match="worker"):
        simulate(bad, "ad_psgd", "ring", 4, steps=200, batch=8)
    assert simulate(bad, "ad_psgd", "ring", 4, steps=200, batch=8, nan="skip").skipped > 0
