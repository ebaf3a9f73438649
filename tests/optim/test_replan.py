"""Another topology and averaging method for an optimizer that gossips already."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_decentral import gossip
from hf_decentral.errors import MismatchError, ParameterError, SettingsError, TopologyError
from hf_decentral.optim import decentralize
from hf_decentral.optim.replan import replan, restore
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.transport import Memory
from tests.optim.cases import gradient, parameters, train_one, train_stacked
from tests.processes import outcomes, run

WORKERS = 4
NEW = [
    ("complete", "plain"),
    ("one_peer_exponential", "int8"),
    ("ring", "int4"),
    ("every(2, ring)", "plain"),
    ("above(0.3, one_peer_exponential)", "plain"),
    ("then(complete, 12, aer)", "bf16"),
    ("ring", "gradient_tracking"),
]


def apart(workers: int = WORKERS) -> Topology:
    """Nobody talks."""
    return Topology.cycle("apart", [Round.identity(workers)])


class Stacked:
    """Four workers in one process, each drawn to a place of its own."""

    def __init__(self, topology: Any, dtype: torch.dtype = torch.float32, **how: Any) -> None:
        self.params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters(dtype)]
        self.optimizer = torch.optim.Adam(self.params, lr=0.05)
        how = {"model": torch.nn.Module(), "transport": Memory(WORKERS), **how}
        decentralize(self.optimizer, topology, **how)

    def train(self, steps: int) -> None:
        train_stacked(self.params, self.optimizer, steps, WORKERS)

    def state(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.params]


@pytest.mark.parametrize("order", ["awc", "atc", "cta"])
def test_workers_that_were_apart_go_on_from_their_mean(order: str) -> None:
    run = Stacked(apart(), order=order)
    run.train(3)
    before = run.state()
    assert any(not torch.equal(p[0], p[1]) for p in before)
    assert gossip(run.optimizer).sent_bytes == 0
    handle = replan(run.optimizer, "complete")
    assert handle is gossip(run.optimizer) and handle.topology.name == "complete" and handle.step == 3
    for p, old in zip(run.state(), before, strict=True):
        torch.testing.assert_close(p, old.mean(0).expand_as(p))
        assert all(torch.equal(p[0], other) for other in p[1:])
    run.train(1)
    assert handle.step == 4
    handle.combine()
    for p in run.params if order != "atc" else ():
        torch.testing.assert_close(p[0], p[1])
    assert handle.sent_bytes > 0 and handle.distance() == pytest.approx(0, abs=1e-5)


def by_hand(topology: str, averaging: str, order: str) -> tuple[list[Tensor], list[Tensor]]:
    """One that is replanned, and one that begins with the same parameters, moments and step."""
    old = Stacked(apart(), order=order)
    old.train(3)
    replan(old.optimizer, topology, averaging)
    new = Stacked(topology, averaging=averaging, order=order)
    for p, q in zip(new.params, old.params, strict=True):
        p.data.copy_(q.data)
    rounds = {**gossip(new.optimizer).state(), "step": 3, "combined": order == "awc"}
    new.optimizer.load_state_dict({**deepcopy(old.optimizer.state_dict()), "hf_decentral": rounds})
    old.train(9)
    new.train(9)
    return old.state(), new.state()


@pytest.mark.parametrize(("topology", "averaging"), NEW)
def test_it_goes_on_as_one_that_began_there_would(topology: str, averaging: str) -> None:
    order = "atc" if averaging == "gradient_tracking" else "awc"
    for p, q in zip(*by_hand(topology, averaging, order), strict=True):
        assert torch.equal(p, q)


def resumed(stop: int | None, topology: str, averaging: str) -> list[Tensor]:
    """Replanned after 3 of 14 steps; the state goes through a file after some of them."""
    run = Stacked(apart())
    for step in range(14):
        if step == 3:
            replan(run.optimizer, topology, averaging)
        if step == stop:
            file = io.BytesIO()
            torch.save((run.state(), run.optimizer.state_dict()), file)
            file.seek(0)
            values, state = torch.load(file)
            run = Stacked(apart())
            if step >= 3:
                rounds = state["hf_decentral"]
                assert (rounds["topology"], rounds["averaging"]) == (topology, averaging)
                restore(run.optimizer, rounds["topology"], rounds["averaging"])
            for p, value in zip(run.params, values, strict=True):
                p.data.copy_(value)
            run.optimizer.load_state_dict(state)
        for k, p in enumerate(run.params):
            p.grad = torch.stack([gradient(p.detach()[w], w, step, k) for w in range(WORKERS)])
        run.optimizer.step()
    gossip(run.optimizer).flush()
    return run.state()


@pytest.mark.parametrize(("topology", "averaging"), NEW[:-1])
def test_a_checkpoint_before_and_after_goes_on_to_the_last_bit(topology: str, averaging: str) -> None:
    whole = resumed(None, topology, averaging)
    for stop in (1, 3, 4, 8):
        for p, q in zip(whole, resumed(stop, topology, averaging), strict=True):
            assert torch.equal(p, q), stop


def test_what_travels_for_several_steps_is_dropped_and_the_mean_stays() -> None:
    run = Stacked("every(4, ring)", delay=3)
    run.train(6)  # begun with step 4, due with step 7
    before = run.state()
    handle = replan(run.optimizer, "every(4, complete)")
    for p, old in zip(run.state(), before, strict=True):
        torch.testing.assert_close(p, old.mean(0).expand_as(p))
    run.train(6)
    assert handle.step == 12
    with pytest.raises(SettingsError, match="delay"):
        replan(handle, "ring")  # the delay stays, and is too long for a round in every step
    assert handle.topology.name == "every(4, complete)"


def test_what_cannot_be_meant_changes_nothing() -> None:
    run = Stacked("ring")
    run.train(2)
    before, plan = run.state(), gossip(run.optimizer).plan
    for topology, averaging in (("rign", None), ("hypercube(3)", None), ("aer", "int9"), ("ring", "d2(3)")):
        with pytest.raises((SettingsError, TopologyError)):
            replan(run.optimizer, topology, averaging)
    assert gossip(run.optimizer).plan is plan
    for p, q in zip(run.state(), before, strict=True):
        assert torch.equal(p, q)
    with torch.no_grad():
        run.params[0].add_(1)
    with pytest.raises(ParameterError, match="changed while its exchange"):
        replan(run.optimizer, "aer")
    with pytest.raises(ParameterError):
        replan(torch.optim.SGD(run.params), "aer")


def test_one_worker_alone() -> None:
    params = [torch.nn.Parameter(p) for p in parameters()]
    optimizer = decentralize(torch.optim.Adam(params, lr=0.05), "ring")
    train_one(params, optimizer, 2, 0)
    assert replan(optimizer, "complete", "int8").topology.name == "complete"
    train_one(params, optimizer, 2, 0)
    assert gossip(optimizer).step == 4


def worker(rank: int, topology: str, averaging: str) -> list[Tensor]:
    params = [torch.nn.Parameter(p) for p in parameters(torch.float64)]
    optimizer = decentralize(torch.optim.Adam(params, lr=0.05), apart())
    train_one(params, optimizer, 3, rank)
    replan(optimizer, topology, averaging, hosts=(0, 0, 1, 1))
    train_one(params, optimizer, 9, rank)
    return [p.detach().clone() for p in params]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("topology", "averaging"), [("complete", "plain"), ("aer", "int8"), ("ring", "int4")]
)
def test_processes_do_as_the_simulator(topology: str, averaging: str) -> None:
    stacked = Stacked(apart(), torch.float64)  # of the mean in float32 a code may be rounded the other way
    stacked.train(3)
    replan(stacked.optimizer, topology, averaging, hosts=(0, 0, 1, 1))
    stacked.train(9)
    for rank, found in enumerate(run(WORKERS, worker, topology, averaging)):
        for p, q in zip(stacked.params, found, strict=True):
            torch.testing.assert_close(p.detach()[rank], q)


def disagreeing(rank: int, how: str) -> tuple[str, str, list[str]]:
    params = [torch.nn.Parameter(p) for p in parameters()]
    optimizer = decentralize(torch.optim.Adam(params, lr=0.05), "ring")
    train_one(params, optimizer, 2, rank)
    first = {"topology": "complete", "typo": "rign", "method": "complete"}[how] if rank == 1 else "aer"
    told = ""
    try:
        replan(optimizer, first, "bf16" if how == "method" and rank == 1 else None)
    except (MismatchError, SettingsError) as error:
        told = f"{type(error).__name__}: {error}"
    train_one(params, optimizer, 2, rank)  # nothing has changed, and they are together
    return told, gossip(optimizer).topology.name, [str(p.sum()) for p in params]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("how", "others", "own"),
    [
        ("topology", "disagree on the topology: worker 1 has 'complete'", "disagree on the topology"),
        ("typo", "nother worker could not begin (worker 1: ", "id you mean 'ring'"),
        ("method", "disagree on the topology", "disagree on the topology"),
    ],
)
def test_workers_that_disagree_are_all_told_and_nobody_hangs(how: str, others: str, own: str) -> None:
    for rank, outcome in enumerate(outcomes(3, disagreeing, how)):
        assert not outcome.error, outcome.error
        told, topology, _ = outcome.value
        assert (own if rank == 1 else others) in told and topology == "ring"
