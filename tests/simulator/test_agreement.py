"""Four processes that take the same batches end where the simulator does, by every algorithm."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_decentral import algorithms
from hf_decentral.errors import SettingsError
from hf_decentral.optim import decentralize, gossip
from hf_decentral.simulator import Problem, problems
from hf_decentral.simulator.lockstep import Simulation, how, plan_of
from hf_decentral.simulator.setup import Setup, optimizer_of
from hf_decentral.simulator.shards import split
from tests.processes import run

WORKERS, STEPS, PERIOD = 4, 7, 3
SYNCHRONOUS = [name for name in algorithms.names() if not algorithms.build(name).alone]


def problem() -> Problem:
    return problems.build("logistic", 6, samples=100, batch=3, dtype=torch.float64)


def setup(name: str, topology: str) -> Setup:
    algorithm = algorithms.build(name)
    rare = algorithm.every(PERIOD if algorithm.period > 1 else None)  # so that rounds come in a few steps
    return Setup(problem(), rare, topology, WORKERS, 3, seed=2, skew=0.3)


def fitting(topology: str) -> list[str]:
    """The algorithms that run on a topology."""
    found = []
    for name in SYNCHRONOUS:
        with suppress(SettingsError):
            plan_of(how(setup(name, topology)))
            found.append(name)
    return found


def one_worker(worker: int, topology: str) -> dict[str, Any]:
    """What a process holds at the end, for each algorithm."""
    found: dict[str, Any] = {}
    for name in fitting(topology):
        chosen = setup(name, topology)
        given, model = chosen.problem, copy.deepcopy(chosen.problem.model)
        shards = split(given, WORKERS, chosen.skew, chosen.seed)
        optimizer = decentralize(optimizer_of(chosen.algorithm)(model), model=model, **how(chosen))
        for step in range(STEPS):
            samples = shards.batch(step, chosen.batch)[worker]
            optimizer.zero_grad()
            loss = given.loss(model(given.train[0][samples]), given.train[1][samples])
            loss.backward()
            gossip(optimizer).loss = loss.detach()[None]
            optimizer.step()
        gossip(optimizer).settle()
        found[name] = (
            {k: p.detach().clone() for k, p in model.named_parameters()},
            gossip(optimizer).sent_bytes,
        )
    return found


def test_every_algorithm_runs_on_a_ring():
    assert fitting("ring") == SYNCHRONOUS


@pytest.mark.parametrize("topology", ["ring", "aer"])
def test_processes_end_where_the_simulator_does(topology: str):
    there = run(WORKERS, one_worker, topology, timeout=200)
    wrong: list[tuple[object, ...]] = []
    for name in fitting(topology):
        simulation = Simulation(setup(name, topology))
        for _ in range(STEPS):
            simulation.step()
        simulation.handle.settle()
        for w in range(WORKERS):
            params: dict[str, Tensor] = there[w][name][0]
            for key, found in params.items():
                error = float((found - simulation.params[key].detach()[w]).abs().max())
                if not error < 1e-12:
                    wrong.append((name, w, key, error))
        mean = sum(there[w][name][1] for w in range(WORKERS)) / WORKERS
        if simulation.sent_bytes != pytest.approx(mean):
            wrong.append((name, "bytes", simulation.sent_bytes, mean))
    assert not wrong
