"""Corrections on real processes: the numbers of the simulator, also over a checkpoint."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_decentral import decentralize, gossip
from hf_decentral.transport import Memory
from tests.optim.cases import gradient, parameters
from tests.processes import run

ROWS = ("al_dsgd", "d2", "dc_s3gd", "decentlam", "gradient_tracking", "qg_dsgdm")
WORKERS, STEPS = 4, 9
TINY = 1e-5  # megabytes: one parameter a bucket
CHANGING = ("one_peer_exponential", "every(2, ring)", "then(complete, 3, ring)", "aer")
STATIC = ("ring", "lazy(ring)", "complete")
CASES = [
    (method, topology, momentum)
    for method in ROWS
    for topology in (*STATIC, *CHANGING)
    for momentum in (0.0, 0.9)
    if not (method in ("qg_dsgdm", "decentlam") and momentum)
    and not (method in ("d2", "decentlam") and topology in CHANGING)
    and not (method == "d2" and topology == "ring")
]


def loss(params: Sequence[Tensor], worker: int) -> Tensor:
    return torch.stack([(p.detach() - math.sin(worker)).square().sum() for p in params]).sum()


def made(
    params: list[Tensor], method: str, topology: str, momentum: float, **how: Any
) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(
        [{"params": params[:2]}, {"params": params[2:], "lr": 0.02}], lr=0.05, momentum=momentum
    )
    order = "awc" if method == "dc_s3gd" else "atc"
    return decentralize(optimizer, topology, averaging=method, order=order, **how)


def train_stacked(params: Sequence[Tensor], optimizer: torch.optim.Optimizer, begin: int, end: int) -> None:
    for step in range(begin, end):
        for k, p in enumerate(params):
            p.grad = torch.stack([gradient(p.detach()[w], w, step, k) for w in range(WORKERS)])
        own = [[p.detach()[w].clone() for p in params] for w in range(WORKERS)]
        gossip(optimizer).loss = torch.stack([loss(own[w], w) for w in range(WORKERS)])
        optimizer.step()


def train_one(
    params: Sequence[Tensor], optimizer: torch.optim.Optimizer, begin: int, end: int, worker: int
) -> None:
    for step in range(begin, end):
        for k, p in enumerate(params):
            p.grad = gradient(p.detach(), worker, step, k)
        gossip(optimizer).loss = loss(params, worker)
        optimizer.step()


def one_worker(worker: int) -> list[list[Tensor]]:
    found = []
    for case in CASES:
        params = [torch.nn.Parameter(p) for p in parameters(torch.float64)]
        optimizer = made(params, *case, bucket_mb=TINY, hosts=range(WORKERS))
        train_one(params, optimizer, 0, STEPS, worker)
        assert len(gossip(optimizer).flats()) == 3
        found.append([p.detach().clone() for p in params])
    return found


def test_four_processes_equal_the_simulator() -> None:
    """To the last bit where workers talk in pairs; a mean over three and more is summed in another order."""
    there = run(WORKERS, one_worker)
    for k, (method, topology, momentum) in enumerate(CASES):
        params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters(torch.float64)]
        optimizer = made(params, method, topology, momentum, bucket_mb=TINY, transport=Memory(WORKERS))
        train_stacked(params, optimizer, 0, STEPS)
        moved = 0.0
        for w in range(WORKERS):
            for p, q, start in zip(params, there[w][k], parameters(torch.float64), strict=True):
                case = (method, topology, momentum, w)
                if topology in ("complete", "then(complete, 3, ring)"):
                    torch.testing.assert_close(q, p.detach()[w], rtol=0, atol=1e-12, msg=str(case))
                else:
                    assert torch.equal(q, p[w]), case
                moved = max(moved, float((q - start).abs().max()))
        assert moved > 0.05


TOPOLOGY = {"d2": "lazy(ring)", "decentlam": "ring"}


def interrupted(worker: int) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """The same training in one piece, and with a new start from a file after some steps."""
    found: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    for method in ROWS:
        results = []
        for stop in (False, True):
            case = method, TOPOLOGY.get(method, "aer"), 0.0
            params = [torch.nn.Parameter(p) for p in parameters(torch.float64)]
            optimizer = made(params, *case, bucket_mb=TINY)
            train_one(params, optimizer, 0, 5, worker)
            if stop:
                file = io.BytesIO()
                torch.save({"optimizer": optimizer.state_dict(), "params": [p.data for p in params]}, file)
                file.seek(0)
                saved = torch.load(file, weights_only=True)
                params = [torch.nn.Parameter(p) for p in parameters(torch.float64)]
                optimizer = made(params, *case, bucket_mb=TINY)
                for p, value in zip(params, saved["params"], strict=True):
                    p.data.copy_(value)
                optimizer.load_state_dict(saved["optimizer"])
            train_one(params, optimizer, 5, 10, worker)
            results.append([p.detach().clone() for p in params])
        found[method] = results[0], results[1]
    return found


def test_resume_is_bitwise() -> None:
    for found in run(3, interrupted):
        for method, (whole, resumed) in found.items():
            assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True)), method


@pytest.mark.parametrize("method", ROWS)
@pytest.mark.parametrize("topology", ["complete", "lazy(ring)"])
def test_resume_of_the_simulator_is_bitwise_after_every_step(method: str, topology: str) -> None:
    def begun() -> tuple[list[Tensor], torch.optim.Optimizer]:
        params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters(torch.float64)]
        return params, made(params, method, topology, 0.0, transport=Memory(WORKERS))

    whole, optimizer = begun()
    states = []
    for step in range(6):
        states.append(([p.detach().clone() for p in whole], io.BytesIO()))
        torch.save(optimizer.state_dict(), states[-1][1])
        train_stacked(whole, optimizer, step, step + 1)
    for step, (values, file) in enumerate(states):
        params, resumed = begun()
        for p, value in zip(params, values, strict=True):
            p.data.copy_(value)
        file.seek(0)
        resumed.load_state_dict(torch.load(file, weights_only=True))
        train_stacked(params, resumed, step, 6)
        assert all(torch.equal(a, b) for a, b in zip(whole, params, strict=True)), step


def joined(worker: int) -> dict[str, tuple[float, bool]]:
    """Parameters that come later: what was remembered fits the old buckets, so that all begin anew."""
    found = {}
    for method in ROWS:
        params = [torch.nn.Parameter(p) for p in parameters(torch.float64)]
        optimizer = made(params, method, TOPOLOGY.get(method, "complete"), 0.0)
        train_one(params, optimizer, 0, 4, worker)
        params.append(torch.nn.Parameter(torch.ones(11, dtype=torch.float64)))
        optimizer.add_param_group({"params": [params[-1]]})
        train_one(params, optimizer, 4, 12, worker)
        moved = all(bool((p.detach() != 1).all()) for p in params[-1:])
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        train_one(params, optimizer, 12, 60, worker)
        found[method] = gossip(optimizer).distance(), moved
    return found


def test_parameters_may_come_later() -> None:
    for found in run(3, joined):
        for method, (distance, moved) in found.items():
            assert moved and distance < 1e-6, method


@pytest.mark.parametrize("method", ROWS)
def test_parameters_without_an_element_and_without_a_gradient(method: str) -> None:
    params = [
        torch.nn.Parameter(torch.ones(2, 3)),
        torch.nn.Parameter(torch.ones(2, 0)),
        torch.nn.Parameter(torch.ones(2, 2)),
    ]
    order = "awc" if method == "dc_s3gd" else "atc"
    optimizer = torch.optim.SGD(params, lr=0.1)
    decentralize(optimizer, "complete", averaging=method, order=order, transport=Memory(2), bucket_mb=1e-6)
    for _ in range(4):
        params[0].grad, params[1].grad = torch.tensor([[1.0], [-1.0]]).expand(2, 3).clone(), torch.zeros(2, 0)
        gossip(optimizer).loss = torch.tensor([1.0, 1.0])
        optimizer.step()
    gossip(optimizer).flush()
    torch.testing.assert_close(params[0].detach().mean(0), torch.ones(3))
    torch.testing.assert_close(params[2].detach(), torch.ones(2, 2))
