"""Laws that every averaging method of the table keeps, on the in-memory transport."""

from __future__ import annotations

import pytest
import torch

from hf_decentral.averaging import TABLE, Local, State, build
from hf_decentral.errors import SettingsError
from hf_decentral.optim.flight import Flight
from hf_decentral.optim.plan import make_plan
from hf_decentral.topology import Topology
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory

WORKERS = 6
# What may remain of the distance: where parameters are rounded themselves, not their differences, they stay
# apart by the rounding; with differences it is only a matter of time.
# A momentum of 0.9 lets differences swing: they shrink by its root in a round at best.
FLOORS = {
    "decentlam": 1e-3,
    "bf16": 2e-3,
    "fp16": 3e-4,
    "int8": 1e-2,
    "low_rank": 1e-4,
    "random_k": 0.6,
    "top_k": 0.02,
}


def prepared(name: str, x: torch.Tensor, rounds: Topology, now: torch.Tensor | None = None) -> State:
    """The state before the first round, made from a point that all workers have in common.

    Where a method takes the way from the last round for the local step: there was none since ``now``.
    """
    state, prepare = State(), build(name).prepare
    state.local = Local(tuple(range(WORKERS)))
    if prepare is not None:
        prepare(x, rounds.repeated() or (), [(0, (x.shape[1],))], state)
    if now is not None and "before" in state:
        state["before"].copy_(now)
    return state


def fits(name: str, topology: str) -> bool:
    """Whether a plan may have both."""
    try:
        make_plan(topology, build(name).orders[0], name, WORKERS, None, 4.0)
    except SettingsError:
        return False
    return True


def pairs(*topologies: str) -> list[tuple[str, str]]:
    return [(name, topology) for topology in topologies for name in TABLE if fits(name, topology)]


def test_every_method_has_a_topology_here() -> None:
    assert {name for name, _ in pairs("lazy(ring)", "complete")} == set(TABLE)
    refused = {"d2": {"ring", "aer"}, "decentlam": {"aer"}}
    for name in TABLE:
        assert {each for each in ("ring", "aer") if not fits(name, each)} == refused.get(name, set())


@pytest.mark.parametrize(("name", "topology"), pairs("ring", "complete", "aer", "lazy(ring)"))
def test_the_mean_is_kept_and_equal_workers_stay_equal(name: str, topology: str) -> None:
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    same = torch.ones(WORKERS, 40, dtype=torch.float64)
    mean = x.mean(0)
    transport = Memory(WORKERS)
    method = build(name)
    states = (prepared(name, torch.zeros_like(x), rounds, x), prepared(name, same, rounds))
    for step in range(8):
        for lane, (values, state) in enumerate(zip((x, same), states, strict=True)):
            flight = method(values, rounds(step), state)
            Flight(flight, values, transport, step, lane, method.background).finish()
    assert torch.allclose(x.mean(0), mean, atol=1e-12, rtol=0)
    assert torch.allclose(same, torch.ones_like(same), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("name", "topology"), pairs("ring", "lazy(ring)"))
def test_beginning_a_round_changes_nothing(name: str, topology: str) -> None:
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 8)
    method, state = build(name), prepared(name, torch.zeros_like(x), rounds)
    before, known = x.clone(), {key: value.clone() for key, value in state.items()}
    for step in range(2):  # begun again, as after a checkpoint was loaded
        Flight(method(x, rounds(0), state), x, Memory(WORKERS), step, 0, method.background).settle()
    assert torch.equal(x, before)
    assert state.keys() == known.keys()
    assert all(torch.equal(state[key], value) for key, value in known.items())


@pytest.mark.parametrize(
    ("name", "topology"), [*pairs("ring", "complete", "one_peer_exponential"), ("d2", "lazy(ring)")]
)
def test_workers_come_together(name: str, topology: str) -> None:
    """What a codec loses is sent later: the distance falls to what the codec cannot express, and no drift."""
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean, start = x.mean(0), float((x - x.mean(0)).norm())
    method, state, transport = build(name), prepared(name, torch.zeros_like(x), rounds, x), Memory(WORKERS)
    for step in range(200):
        Flight(method(x, rounds(step), state), x, transport, step, 0, method.background).finish()
    assert torch.allclose(x.mean(0), mean, atol=1e-11, rtol=0)
    assert float((x - mean).norm()) < FLOORS.get(name, 1e-6) * start


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'plain'"):
        build("plian")
