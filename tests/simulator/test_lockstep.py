"""Oracles in float64: the rules of algorithms.md on quadratics, with matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hf_decentral import algorithms, topology
from hf_decentral.algorithms import Algorithm
from hf_decentral.errors import DecentralizedError, SettingsError, TopologyError
from hf_decentral.simulator import Problem, problems
from hf_decentral.simulator.lockstep import Simulation
from hf_decentral.simulator.setup import Setup
from hf_decentral.simulator.shards import split

WORKERS, STEPS, RATE = 6, 12, 0.3


def plain(order: str = "atc", lr: float = RATE, optimizer: str = "sgd") -> Algorithm:
    return Algorithm("own", "own", optimizer=optimizer, order=order, lr=lr)


def problem() -> Problem:
    return problems.build("quadratic", 9, 2, unequal=5.0, samples=60, batch=2, dtype=torch.float64)


def simulated(setup: Setup, steps: int = STEPS) -> Simulation:
    simulation = Simulation(setup)
    for _ in range(steps):
        simulation.step()
    return simulation


def gradients(given: Problem, x: Tensor, samples: Tensor) -> Tensor:
    """``[W, dim]``, written out: ``mean_b w_b a (x - z_b B)``."""
    z, weights = (part[samples] for part in given.train)
    away = x[:, None] - z @ given.model.basis
    return (weights[..., None] * given.model.root.square() * away).mean(1)


def rule(order: str, name: str, skew: float | None) -> Tensor:
    """D-PSGD by matrices."""
    given = problem()
    rounds = topology.build(name, WORKERS)
    shards = split(given, WORKERS, skew, 1)
    x = given.model.x.detach().expand(WORKERS, -1).clone()
    for step in range(STEPS):
        matrix, samples = rounds(step).matrix(), shards.batch(step, given.batch)
        if order == "atc":
            x = matrix @ (x - RATE * gradients(given, x, samples))
        elif order == "cta":
            x = matrix @ x
            x = x - RATE * gradients(given, x, samples)
        else:
            x = matrix @ x - RATE * gradients(given, x, samples)
    return x


@pytest.mark.parametrize("skew", [None, 0.1])
@pytest.mark.parametrize("name", ["ring", "one_peer_exponential", "aer", "complete"])
@pytest.mark.parametrize("order", ["atc", "cta", "awc"])
def test_dpsgd_is_the_rule_with_matrices(order: str, name: str, skew: float | None):
    simulation = simulated(Setup(problem(), plain(order), name, WORKERS, 2, seed=1, skew=skew))
    torch.testing.assert_close(
        simulation.params["x"].detach(), rule(order, name, skew), rtol=1e-12, atol=1e-12
    )


def test_complete_rounds_after_the_step_are_centralized_training():
    given = problem()
    simulation = simulated(Setup(given, plain("atc", optimizer="sgd"), "complete", WORKERS, 2, seed=4))
    shards = split(given, WORKERS, None, 4)
    x = given.model.x.detach().clone()
    for step in range(STEPS):
        x -= RATE * gradients(given, x.expand(WORKERS, -1), shards.batch(step, 2)).mean(0)
    for own in simulation.params["x"].detach():
        torch.testing.assert_close(own, x, rtol=1e-12, atol=1e-12)
    assert simulation.handle.distance() < 1e-12


def test_workers_that_see_everything_reach_the_optimum():
    """One sample for each group and worker: with full batches of equal shards the mean is centralized."""
    given = problems.build("quadratic", 9, noise=0.0, unequal=1.0, dtype=torch.float64)
    simulation = simulated(Setup(given, plain("atc", 0.5), "complete", 10, 200), 300)
    loss, accuracy = simulation.evaluate()
    assert accuracy is None
    assert loss - given.optimum < 0.05 * (float(problem_loss(given)) - given.optimum)


@torch.no_grad()
def problem_loss(given: Problem) -> Tensor:
    return given.loss(given.model(given.valid[0]), given.valid[1])


def test_one_worker_is_plain_training():
    given = problem()
    simulation = simulated(Setup(given, algorithms.build("dadam"), "ring", 1, 2))
    shards, model = split(given, 1), problem().model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for step in range(STEPS):
        optimizer.zero_grad()
        samples = shards.batch(step, 2)[0]
        given.loss(model(given.train[0][samples]), given.train[1][samples]).backward()
        optimizer.step()
    torch.testing.assert_close(simulation.params["x"].detach()[0], model.x.detach(), rtol=1e-12, atol=1e-12)
    assert simulation.sent_bytes == 0


def test_how_many_workers_are_taken_at_once_changes_rounding_only():
    setup = Setup(problem(), plain("awc"), "ring", WORKERS, 2)
    whole, single = Simulation(setup), Simulation(setup, chunk=1)
    for _ in range(STEPS):
        whole.step()
        single.step()
    torch.testing.assert_close(whole.params["x"], single.params["x"], rtol=1e-12, atol=1e-12)


def test_decay_spares_vectors_as_it_does_on_real_workers():
    algorithm = Algorithm("own", "own", optimizer="adamw", settings={"weight_decay": 0.5}, lr=0.1)
    simulation = Simulation(Setup(problems.build("logistic", 4), algorithm, "ring", 4, 2))
    decay = {
        tuple(p.shape): group["weight_decay"]
        for group in simulation.optimizer.param_groups
        for p in group["params"]
    }
    assert decay == {(4, 10, 4): 0.5, (4, 10): 0.0}


def test_ones_own_rounds():
    own = topology.build("ring", WORKERS)
    by_object = simulated(Setup(problem(), plain(), own, WORKERS, 2))
    by_name = simulated(Setup(problem(), plain(), "ring", WORKERS, 2))
    assert torch.equal(by_object.params["x"], by_name.params["x"])
    with pytest.raises(SettingsError, match="topology.workers=6"):
        Simulation(Setup(problem(), plain(), own, 4, 2))
    with pytest.raises(SettingsError, match="given as an object"):
        Simulation(Setup(problem(), algorithms.build("local_sgd"), own, WORKERS, 2))
    with pytest.raises(TopologyError):
        Simulation(Setup(problem(), plain(), "hypercube", WORKERS, 2))


def poisoned(sample: int) -> Problem:
    """A quadratic with a sample that is no number."""
    given = problem()
    inputs = given.train[0].clone()
    inputs[sample] = float("nan")
    return Problem("own", given.model, given.loss, (inputs, given.train[1]), given.valid, 2)


def test_the_worker_with_a_number_that_is_none_is_named():
    given = poisoned(7)
    owner = next(w for w in range(WORKERS) if 7 in split(given, WORKERS).of(w))
    with pytest.raises(
        DecentralizedError, match=rf"Worker {owner} of 6 had a loss or gradient .* in step \d+"
    ):
        simulated(Setup(given, plain(), "ring", WORKERS, 2), 60)


def test_or_left_out():
    given = poisoned(7)
    owner = next(w for w in range(WORKERS) if 7 in split(given, WORKERS).of(w))
    simulation = simulated(Setup(given, plain(), "ring", WORKERS, 2, skip=True), 60)
    shards = split(given, WORKERS)
    expected = sum(7 in shards.batch(step, 2)[owner] for step in range(60))
    assert simulation.skipped == expected > 0
    assert bool(simulation.params["x"].isfinite().all())
    assert simulation.compute() == simulation.compute()  # a mean of finite losses


def test_when_all_are_lost_nothing_is_left_out():
    given = problem()
    with pytest.raises(DecentralizedError, match=r"Workers 0, 1, 2, 3, 4, 5 of 6 .*\n.*\n  Lower lr"):
        simulated(Setup(given, plain(lr=1e300), "ring", WORKERS, 2, skip=True), 9)


def test_accuracy_is_told_for_classes():
    given = problems.build("logistic", 8, separation=8.0)
    simulation = simulated(Setup(given, plain(lr=0.5), "ring", 4, 16), 60)
    loss, accuracy = simulation.evaluate()
    mean = {name: p.detach().mean(0) for name, p in simulation.params.items()}
    scores = given.valid[0] @ mean["weight"].T + mean["bias"]
    assert accuracy == pytest.approx(float((scores.argmax(1) == given.valid[1]).double().mean()))
    assert loss == pytest.approx(float(nn.functional.cross_entropy(scores, given.valid[1])), rel=1e-5)
    assert accuracy > 0.9


def test_bytes_are_those_of_the_rounds():
    """A ring of six sends the parameters to two neighbours in every step; what travels is counted too."""
    of_one = 9 * 8
    atc = simulated(Setup(problem(), plain("atc"), "ring", WORKERS, 2))
    padded = atc.handle.flats()[0].shape[1] * 8
    assert atc.sent_bytes == STEPS * 2 * padded
    awc = simulated(Setup(problem(), plain("awc"), "ring", WORKERS, 2))
    assert awc.sent_bytes == (STEPS + 1) * 2 * padded
    assert padded >= of_one


def test_rounds_of_a_cycle_come_in_turn():
    """Four workers that hear the one before, then the one before that, hold the mean after two rounds."""
    simulation = Simulation(Setup(problem(), plain(lr=0.0), "one_peer_exponential", 4, 2))
    x = torch.arange(4.0, dtype=torch.float64)[:, None].expand(4, 9).clone()
    simulation.params["x"].data.copy_(x)
    simulation.step()
    first = simulation.params["x"].detach()[:, 0].clone()
    simulation.step()
    assert first.tolist() == [1.5, 0.5, 1.5, 2.5]
    assert simulation.params["x"].detach()[:, 0].tolist() == [1.5, 1.5, 1.5, 1.5]
