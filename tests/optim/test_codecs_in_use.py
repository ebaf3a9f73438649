"""Averaging methods with codecs under a real optimizer: on processes, in the simulator, over a checkpoint."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_decentral import gossip
from hf_decentral.averaging import TABLE as METHODS
from hf_decentral.averaging import build as build_method
from hf_decentral.errors import MismatchError, SettingsError
from hf_decentral.optim import decentralize
from hf_decentral.rounds import Round
from hf_decentral.topology import Topology, build
from hf_decentral.transport import Memory
from tests.optim.cases import parameters, train_one, train_stacked
from tests.processes import run

STEPS, WORKERS = 8, 4


def anywhere(name: str) -> bool:
    """Whether a method works in any order and with any of the topologies below; others have own tests."""
    method = build_method(name)
    anyhow = method.check_optimizer is None and len(method.orders) == 3
    return anyhow and not (method.whole or method.push or method.mutual)


TABLE = [name for name in METHODS if anywhere(name)]
TOPOLOGIES = ("one_peer_exponential", "ring", "complete", "every(2, ring)", "then(complete, 3, ring)")


def stacked(averaging: str, topology: str) -> list[Tensor]:
    params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]
    optimizer = torch.optim.Adam(params, lr=0.05)
    decentralize(optimizer, topology, averaging=averaging, transport=Memory(WORKERS))
    train_stacked(params, optimizer, STEPS, WORKERS)
    return [p.detach().clone() for p in params]


def one_worker(worker: int) -> dict[tuple[str, str], list[Tensor]]:
    found = {}
    for averaging in TABLE:
        for topology in TOPOLOGIES:
            params = [torch.nn.Parameter(p) for p in parameters()]
            optimizer = torch.optim.Adam(params, lr=0.05)
            decentralize(optimizer, topology, averaging=averaging)
            train_one(params, optimizer, STEPS, worker)
            found[averaging, topology] = [p.detach().clone() for p in params]
    return found


def test_processes_equal_the_simulator_to_the_last_bit() -> None:
    there = run(WORKERS, one_worker)
    for averaging in set(TABLE) - {"plain"}:  # a plain mean over three is one collective, in its own order
        for topology in TOPOLOGIES:
            here = stacked(averaging, topology)
            for w in range(WORKERS):
                for k, p in enumerate(here):
                    assert torch.equal(there[w][averaging, topology][k], p[w]), (averaging, topology, w, k)


def interrupted(worker: int, averaging: str) -> tuple[list[Tensor], list[Tensor]]:
    """The same training in one piece, and with a new start from a file after five steps."""
    results = []
    for stop in (False, True):
        params = [torch.nn.Parameter(p) for p in parameters()]
        optimizer = decentralize(torch.optim.Adam(params, lr=0.05), "aer", averaging=averaging)
        train_one(params, optimizer, 5, worker)
        if stop:
            file = io.BytesIO()
            torch.save({"optimizer": optimizer.state_dict(), "params": [p.data for p in params]}, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            params = [torch.nn.Parameter(p) for p in parameters()]
            optimizer = decentralize(torch.optim.Adam(params, lr=0.05), "aer", averaging=averaging)
            for p, value in zip(params, saved["params"], strict=True):
                p.data.copy_(value)
            optimizer.load_state_dict(saved["optimizer"])
        train_one(params, optimizer, 5, worker)
        results.append([p.detach().clone() for p in params])
    return results[0], results[1]


@pytest.mark.parametrize("averaging", sorted(set(TABLE) - {"plain"}))
def test_resume_is_bitwise(averaging: str) -> None:
    for whole, resumed in run(3, interrupted, averaging):
        assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


def test_what_was_remembered_of_other_buckets_is_refused() -> None:
    def made(averaging: str, bucket_mb: float) -> torch.optim.Optimizer:
        params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]
        optimizer = torch.optim.SGD(params, lr=0.1)
        how = {"averaging": averaging, "bucket_mb": bucket_mb, "transport": Memory(WORKERS)}
        decentralize(optimizer, "ring", **how)
        train_stacked(params, optimizer, 2, WORKERS)
        return optimizer

    state = made("int4", 1e-5).state_dict()
    with pytest.raises(MismatchError, match="bucket_mb 1e-05.*\n.*bucket_mb 4"):
        made("int4", 4).load_state_dict(state)
    made("plain", 4).load_state_dict(made("plain", 1e-5).state_dict())


def on(topology: str, averaging: str = "int4") -> torch.optim.Optimizer:
    params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]
    optimizer = torch.optim.SGD(params, lr=0.1)
    decentralize(optimizer, topology, averaging=averaging, transport=Memory(WORKERS))
    train_stacked(params, optimizer, 3, WORKERS)
    return optimizer


def test_what_was_remembered_of_other_rounds_is_refused() -> None:
    state = on("ring").state_dict()
    with pytest.raises(MismatchError, match="another topology"):
        on("complete").load_state_dict(state)
    on("complete", "int8").load_state_dict(on("ring", "int8").state_dict())  # that remembers no rounds


def test_what_was_loaded_belongs_to_the_optimizer_alone() -> None:
    state = on("ring").state_dict()
    kept = {name: item.clone() for name, item in state["hf_decentral"]["states"][0].items() if name != "sent"}
    optimizer = on("ring")
    optimizer.load_state_dict(state)
    train_stacked(optimizer.param_groups[0]["params"], optimizer, 3, WORKERS)
    for name, item in kept.items():
        assert torch.equal(item, state["hf_decentral"]["states"][0][name])


@pytest.mark.parametrize("averaging", sorted(set(TABLE) - {"plain"}))
def test_complex_parameters_are_refused_where_they_cannot_be_encoded(averaging: str) -> None:
    p = torch.nn.Parameter(torch.ones(WORKERS, 3, dtype=torch.complex64))
    with pytest.raises(SettingsError, match="(?i)real parameters"):
        decentralize(torch.optim.SGD([p]), "ring", averaging=averaging, transport=Memory(WORKERS))


@pytest.mark.parametrize("averaging", ["int4", "bf16"])
def test_a_state_that_tells_nothing_of_the_neighbours_lets_the_workers_meet_first(averaging: str) -> None:
    optimizer = on("ring", averaging)
    state = optimizer.state_dict()
    del state["hf_decentral"]
    other = on("ring", averaging)
    params = other.param_groups[0]["params"]
    mean = [p.detach().mean(0) for p in params]
    other.load_state_dict(state)
    for p in params:
        p.grad = torch.zeros_like(p)
    for _ in range(5):
        other.step()
    gossip(other).flush()
    for p, expected in zip(params, mean, strict=True):
        torch.testing.assert_close(p.detach(), expected.expand_as(p), rtol=0, atol=2e-2)


@pytest.mark.parametrize("averaging", sorted(TABLE))
def test_parameters_without_an_element_travel_too(averaging: str) -> None:
    p = torch.nn.Parameter(torch.ones(2, 0))
    optimizer = torch.optim.SGD([p], lr=0.1)
    decentralize(optimizer, "ring", averaging=averaging, transport=Memory(2))
    for _ in range(3):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    gossip(optimizer).flush()


@pytest.mark.parametrize("size", [None, "4", 0, -1, float("nan"), float("inf")])
def test_a_bucket_has_a_size(size: Any) -> None:
    with pytest.raises(SettingsError, match="megabytes"):
        decentralize(torch.optim.SGD([torch.nn.Parameter(torch.ones(2, 3))]), "ring", bucket_mb=size)


def joined(worker: int, averaging: str) -> float:
    """Parameters that come later: what was remembered of the others does not fit the new bucket."""
    params = [torch.nn.Parameter(p) for p in parameters()]
    optimizer = decentralize(torch.optim.SGD(params, lr=0.05), "complete", averaging=averaging)
    train_one(params, optimizer, 4, worker)
    params.append(torch.nn.Parameter(torch.ones(11)))
    optimizer.add_param_group({"params": [params[-1]]})
    train_one(params, optimizer, 1, worker)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train_one(params, optimizer, 60, worker)
    distance = gossip(optimizer).distance()
    assert all(p.isfinite().all() for p in params)
    return distance


@pytest.mark.parametrize("averaging", ["bf16", "int4"])
def test_parameters_may_come_later(averaging: str) -> None:
    floor = {"bf16": 0.05, "int4": 1e-5}[averaging]
    assert max(run(3, joined, averaging)) < floor


def other_codec(worker: int) -> None:
    p = torch.nn.Parameter(torch.ones(3))
    decentralize(torch.optim.SGD([p], lr=0.1), "ring", averaging="int8" if worker else "int4")


def test_workers_with_other_codecs_hear_of_it() -> None:
    with pytest.raises(Exception, match=r"MismatchError[\s\S]*the averaging method"):
        run(2, other_codec)


def test_a_memory_of_rounds_needs_rounds_that_repeat() -> None:
    endless = Topology("endless", 2, None, lambda step: Round.average([(0, 1)], 2))
    p = torch.nn.Parameter(torch.ones(2, 3))
    with pytest.raises(SettingsError, match="do not repeat"):
        decentralize(torch.optim.SGD([p], lr=0.1), endless, averaging="int4", transport=Memory(2))
    decentralize(torch.optim.SGD([p], lr=0.1), endless, averaging="int8", transport=Memory(2))


@pytest.mark.parametrize("averaging", TABLE)
def test_parameters_of_one_element_and_of_none(averaging: str) -> None:
    params = [torch.nn.Parameter(torch.ones(2, 1)), torch.nn.Parameter(torch.ones(2, 0))]
    optimizer = torch.optim.SGD(params, lr=0.1)
    decentralize(optimizer, build("ring", 2), averaging=averaging, transport=Memory(2))
    for _ in range(4):
        params[0].grad, params[1].grad = torch.tensor([[1.0], [-1.0]]), torch.zeros(2, 0)
        optimizer.step()
    assert abs(float(params[0].detach().mean()) - 1.0) < 1e-6


def test_half_precision_parameters_may_be_encoded() -> None:
    p = torch.nn.Parameter(torch.ones(2, 64, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([p], lr=0.125)
    decentralize(optimizer, "ring", averaging="int4", transport=Memory(2))
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert torch.equal(p.detach(), torch.full_like(p, 1 - 3 * 0.125))
