"""Laws that every averaging method of the table keeps, on the in-memory transport."""

from __future__ import annotations

import pytest
import torch

from hf_decentral.averaging import TABLE, State
from hf_decentral.averaging import build as build_method
from hf_decentral.averaging.base import Averaging
from hf_decentral.errors import SettingsError
from hf_decentral.optim.flight import Flight
from hf_decentral.topology import Topology
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory

WORKERS = 6
# What may remain of the distance: where parameters are rounded themselves, not their differences, they stay
# apart by the rounding; with differences it is only a matter of time.
FLOORS = {
    "bf16": 2e-3,
    "choco": 0.02,
    "deepsqueeze": 1e-2,
    "fp16": 3e-4,
    "int8": 1e-2,
    "low_rank": 1e-4,
    "moniqua": 0.05,
    "random_k": 0.6,
    "top_k": 0.02,
}
# Workers here are further apart than in training.
TEXTS = {"moniqua": "moniqua(8, 24)"}


def build(name: str) -> Averaging:
    return build_method(TEXTS.get(name, name))


def prepared(name: str, x: torch.Tensor, rounds: Topology) -> State:
    """The state before the first round, made from a point that all workers have in common."""
    state, prepare = State(), build(name).prepare
    if prepare is not None:
        prepare(x, rounds.repeated() or (), [(0, (x.shape[1],))], state)
    return state


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("topology", ["ring", "complete", "aer"])
def test_the_mean_is_kept_and_equal_workers_stay_equal(name: str, topology: str) -> None:
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    same = torch.ones(WORKERS, 40, dtype=torch.float64)
    mean = x.mean(0)
    transport = Memory(WORKERS)
    method = build(name)
    states = (prepared(name, torch.zeros_like(x), rounds), prepared(name, same, rounds))
    for step in range(8):
        for lane, (values, state) in enumerate(zip((x, same), states, strict=True)):
            flight = method(values, rounds(step), state)
            Flight(flight, values, transport, step, lane, method.background).finish()
    assert torch.allclose(x.mean(0), mean, atol=1e-12, rtol=0)
    assert torch.allclose(same, torch.ones_like(same), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", TABLE)
def test_beginning_a_round_changes_nothing(name: str) -> None:
    rounds = build_topology("ring", WORKERS)
    x = torch.randn(WORKERS, 8)
    method, state = build(name), prepared(name, torch.zeros_like(x), rounds)
    before, known = x.clone(), {key: value.clone() for key, value in state.items()}
    for step in range(2):  # begun again, as after a checkpoint was loaded
        Flight(method(x, rounds(0), state), x, Memory(WORKERS), step, 0, method.background).settle()
    assert torch.equal(x, before)
    assert state.keys() == known.keys()
    assert all(torch.equal(state[key], value) for key, value in known.items())


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("topology", ["ring", "complete", "one_peer_exponential"])
def test_workers_come_together(name: str, topology: str) -> None:
    """What a codec loses is sent later: the distance falls to what the codec cannot express, and no drift."""
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean, start = x.mean(0), float((x - x.mean(0)).norm())
    method, state, transport = build(name), prepared(name, torch.zeros_like(x), rounds), Memory(WORKERS)
    for step in range(200):
        Flight(method(x, rounds(step), state), x, transport, step, 0, method.background).finish()
    assert torch.allclose(x.mean(0), mean, atol=1e-11, rtol=0)
    assert float((x - mean).norm()) < FLOORS.get(name, 1e-6) * start


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'plain'"):
        build("plian")
