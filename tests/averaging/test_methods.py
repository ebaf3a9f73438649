"""Laws that every averaging method of the table keeps, on the in-memory transport."""

from __future__ import annotations

import copy

import pytest
import torch

from hf_decentral.averaging import TABLE, Local, State
from hf_decentral.averaging import build as build_method
from hf_decentral.averaging.base import Averaging
from hf_decentral.errors import SettingsError
from hf_decentral.optim.flight import Flight
from hf_decentral.optim.plan import make_plan
from hf_decentral.topology import Topology
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory

WORKERS = 6
# An outer step goes on in the direction in which the workers went: it keeps no mean, but a common point.
OUTER = {"diloco", "noloco", "slowmo", "streaming_diloco"}
AVERAGES = [name for name in TABLE if name not in OUTER]
FOLDING = {"push_sum"}  # what the local step added is taken into the state when a round begins, once
# What may remain of the distance: where parameters are rounded themselves, not their differences, they stay
# apart by the rounding; with differences it is only a matter of time.
FLOORS = {
    "bf16": 2e-3,
    "choco": 0.02,
    "decentlam": 1e-3,  # a momentum of 0.9 lets differences swing: they shrink by its root in a round at best
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
CARRYING = {"scalecom"}  # what was not sent is in no worker's parameters: the mean of both is kept


def build(name: str) -> Averaging:
    return build_method(TEXTS.get(name, name))


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


def land(name: str, x: torch.Tensor, rounds: Topology, state: State, step: int) -> None:
    """One round of one bucket, as the engine drives it."""
    method = build(name)
    sent = x.clone()
    arrived = sent.clone() if method.land is not None else x
    transport = Memory(WORKERS)
    Flight(method(arrived, rounds(step), state), arrived, transport, step, 0, method.background).finish()
    if method.land is not None:
        method.land(x, arrived, sent, state)


def mean_of(name: str, x: torch.Tensor, state: State) -> torch.Tensor:
    """What an average must keep."""
    return x.mean(0) + state["lost"].mean(0) if name in CARRYING else x.mean(0)


@pytest.mark.parametrize("name", sorted(OUTER))
def test_workers_that_did_not_move_stay(name: str) -> None:
    rounds, same = build_topology("complete", WORKERS), torch.ones(WORKERS, 40, dtype=torch.float64)
    state = prepared(name, same, rounds)
    for step in range(8):
        land(name, same, rounds, state, step)
    assert torch.equal(same, torch.ones_like(same))


def fits(name: str, topology: str) -> bool:
    """Whether a plan may have both."""
    try:
        make_plan(topology, build(name).orders[0], TEXTS.get(name, name), WORKERS, None, 4.0)
    except SettingsError:
        return False
    return True


def pairs(*topologies: str) -> list[tuple[str, str]]:
    return [(name, topology) for topology in topologies for name in AVERAGES if fits(name, topology)]


def test_every_method_has_a_topology_here() -> None:
    assert {name for name, _ in pairs("lazy(ring)", "complete")} == set(AVERAGES)
    everybody = {name: {"ring", "aer"} for name in TABLE if build(name).whole}
    refused = {"d2": {"ring", "aer"}, "decentlam": {"aer"}, **everybody}
    assert everybody
    for name in TABLE:
        assert {each for each in ("ring", "aer") if not fits(name, each)} == refused.get(name, set())


@pytest.mark.parametrize(("name", "topology"), pairs("ring", "complete", "aer", "lazy(ring)"))
def test_the_mean_is_kept_and_equal_workers_stay_equal(name: str, topology: str) -> None:
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    same = torch.ones(WORKERS, 40, dtype=torch.float64)
    mean = x.mean(0)
    states = (prepared(name, torch.zeros_like(x), rounds, x), prepared(name, same, rounds))
    for step in range(8):
        for values, state in zip((x, same), states, strict=True):
            land(name, values, rounds, state, step)
    assert torch.allclose(mean_of(name, x, states[0]), mean, atol=1e-12, rtol=0)
    assert torch.allclose(same, torch.ones_like(same), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("name", "topology"), pairs("ring", "lazy(ring)"))
def test_beginning_a_round_changes_nothing(name: str, topology: str) -> None:
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 8)
    method, state = build(name), prepared(name, torch.zeros_like(x), rounds)
    if name in FOLDING:
        Flight(method(x, rounds(0), state), x, Memory(WORKERS), 0, 0, method.background).settle()
    before, known = x.clone(), copy.deepcopy(dict(state))
    for step in range(2):  # begun again, as after a checkpoint was loaded
        Flight(method(x, rounds(0), state), x, Memory(WORKERS), step, 0, method.background).settle()
    assert torch.equal(x, before)
    assert state.keys() == known.keys()
    assert all(
        torch.equal(state[key], value) if isinstance(value, torch.Tensor) else state[key] == value
        for key, value in known.items()
    )


@pytest.mark.parametrize(
    ("name", "topology"), [*pairs("ring", "complete", "one_peer_exponential"), ("d2", "lazy(ring)")]
)
def test_workers_come_together(name: str, topology: str) -> None:
    """What a codec loses is sent later: the distance falls to what the codec cannot express, and no drift."""
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean, start = x.mean(0), float((x - x.mean(0)).norm())
    state = prepared(name, torch.zeros_like(x), rounds, x)
    for step in range(200):
        land(name, x, rounds, state, step)
    assert torch.allclose(mean_of(name, x, state), mean, atol=1e-11, rtol=0)
    assert float((x - x.mean(0)).norm()) < FLOORS.get(name, 1e-6) * start


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'plain'"):
        build("plian")
