"""Training on several hosts by shards: the simulator's numbers, schedules, and exact resume."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor

from hf_decentral.optim import decentralize, gossip
from hf_decentral.transport import Memory
from tests.optim.cases import OPTIMIZERS, parameters, train_one, train_stacked
from tests.processes import run

STEPS = 12
HOSTS = {"2x2": [0, 0, 1, 1], "3x2": [0, 0, 1, 1, 2, 2], "2x3": [0, 0, 0, 1, 1, 1], "uneven": [0, 0, 0, 1, 1]}
ORDERS = ("awc", "atc")
SCHEDULES = ("hierarchical", "every(2, hierarchical)", "then(ring, 3, hierarchical)")


def cases() -> list[tuple[str, str, str]]:
    """Every optimizer on the plain topology, and every schedule under one optimizer."""
    one = [(optimizer, order, "hierarchical") for optimizer in OPTIMIZERS for order in ORDERS]
    return one + [("adam", "awc", topology) for topology in SCHEDULES[1:]]


def one_worker(worker: int, hosts: list[int]) -> list[tuple[list[Tensor], float]]:
    found = []
    for name, order, topology in cases():
        params = [torch.nn.Parameter(p) for p in parameters()]
        optimizer = decentralize(OPTIMIZERS[name](params), topology, order=order, hosts=hosts)
        train_one(params, optimizer, STEPS, worker)
        gossip(optimizer).flush()
        found.append(([p.detach().clone() for p in params], gossip(optimizer).sent_bytes))
    return found


@pytest.mark.parametrize("layout", HOSTS)
def test_processes_equal_the_simulator(layout: str) -> None:
    hosts = HOSTS[layout]
    workers = len(hosts)
    there = run(workers, one_worker, hosts)
    for k, (name, order, topology) in enumerate(cases()):
        params = [torch.nn.Parameter(p.expand(workers, *p.shape).clone()) for p in parameters()]
        optimizer = decentralize(
            OPTIMIZERS[name](params), topology, order=order, hosts=hosts, transport=Memory(workers)
        )
        train_stacked(params, optimizer, STEPS, workers)
        gossip(optimizer).flush()
        for w in range(workers):
            for found, expected in zip(there[w][k][0], params, strict=True):
                torch.testing.assert_close(found, expected.detach()[w], rtol=1e-5, atol=1e-5)
        sent = sum(values[k][1] for values in there) / workers
        assert sent == pytest.approx(gossip(optimizer).sent_bytes)


def interrupted(worker: int) -> list[list[Tensor]]:
    """The same training in one piece, and with a new start from a file after five steps."""
    results = []
    for stop in (False, True):
        params = [torch.nn.Parameter(p) for p in parameters()]
        optimizer = decentralize(torch.optim.Adam(params, lr=0.05), "hierarchical", hosts=HOSTS["2x2"])
        train_one(params, optimizer, 5, worker)
        if stop:
            file = io.BytesIO()
            torch.save({"optimizer": optimizer.state_dict(), "params": [p.data for p in params]}, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            params = [torch.nn.Parameter(p) for p in parameters()]
            optimizer = decentralize(torch.optim.Adam(params, lr=0.05), "hierarchical", hosts=HOSTS["2x2"])
            for p, value in zip(params, saved["params"], strict=True):
                p.data.copy_(value)
            optimizer.load_state_dict(saved["optimizer"])
        train_one(params, optimizer, 5, worker)
        results.append([p.detach().clone() for p in params])
    return results


def test_resume_is_bitwise() -> None:
    for whole, resumed in run(4, interrupted):
        assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))
