"""A step that is taken bucket by bucket inside backward is the same step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hf_decentral import gossip
from hf_decentral.errors import ParameterError
from hf_decentral.optim import decentralize
from hf_decentral.transport import Memory
from tests.processes import run

TINY = 1e-5  # megabytes: one parameter a bucket


def net() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 6))
    model[2].weight = nn.Parameter(model[2].weight.detach())
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    model.register_parameter("scale", nn.Parameter(torch.ones(())))
    return model


def loss(model: Any, worker: int, step: int) -> Tensor:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * worker + step))
    return (model(x) * model.scale * x @ model[0].weight.T).square().mean()  # a weight that is used twice


def trained(worker: int, early: bool, averaging: str, poison: bool) -> tuple[list[Tensor], int, list[float]]:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    decentralize(optimizer, "one_peer_exponential", averaging=averaging, bucket_mb=TINY, early=early)
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    distances = []
    for step in range(6):
        optimizer.zero_grad()
        value = loss(model, worker, step)
        if poison and (worker, step) == (1, 3):
            value = value * float("nan")
        value.backward()
        optimizer.step()
        rates.step()
        if step == 2:
            distances.append(gossip(optimizer).distance())
        if step == 4:
            gossip(optimizer).flush()
    return [p.detach().clone() for p in model.parameters()], gossip(optimizer).step, distances


@pytest.mark.parametrize("averaging", ["plain", "bf16"])
def test_a_step_inside_backward_is_the_same_step(averaging: str) -> None:
    usual, early = (run(3, trained, kind, averaging, False) for kind in (False, True))
    for (p, steps, far), (q, others, near) in zip(usual, early, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(p, q, strict=True))
        assert (steps, far) == (others, near)


def test_a_nan_is_dropped_inside_backward_too() -> None:
    for p, _, _ in run(3, trained, True, "plain", True):
        assert all(each.isfinite().all() for each in p)


def twice(worker: int) -> str:
    model = net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), "ring", bucket_mb=TINY, early=True)
    loss(model, worker, 0).backward()
    optimizer.step()
    loss(model, worker, 1).backward()
    try:
        gossip(optimizer).flush()
    except ParameterError as error:
        first = str(error)
    try:
        loss(model, worker, 2).backward()
    except ParameterError as error:
        return first + str(error)
    return ""


def test_two_backwards_and_a_look_between_are_told() -> None:
    for said in run(2, twice):
        assert "between backward() and step()" in said
        assert "a second backward()" in said.lower() or "second backward()" in said


class Own(torch.optim.SGD):
    """Nobody knows what it does in a step."""


@pytest.mark.parametrize(
    ("make", "order", "said"),
    [
        (lambda p: Own([p], lr=0.1), "awc", "parameter by parameter"),
        (lambda p: torch.optim.SGD([p], lr=0.1), "atc", "order is 'atc'"),
        (lambda p: torch.optim.SGD([p], lr=0.1), "awc", "several workers"),
    ],
)
def test_what_cannot_begin_early_is_told(make: Any, order: str, said: str) -> None:
    p = nn.Parameter(torch.ones(2, 3))
    with pytest.raises(ParameterError, match=said):
        decentralize(make(p), "ring", order=order, transport=Memory(2), early=True)


def out_of_turn(worker: int, early: bool, topology: str, averaging: str) -> list[Tensor]:
    """Worker 1 leaves out a layer in some steps, and flushes alone in another: its buckets get ready in an
    order of their own, yet leave in that of the others."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    how = {"averaging": averaging, "bucket_mb": TINY, "early": early, "comm_timeout": 20}
    decentralize(optimizer, topology, **how)
    for step in range(6):
        optimizer.zero_grad()
        loss(model, worker, step).backward() if worker != 1 or step % 2 else model[0](
            torch.ones(2, 6)
        ).square().sum().backward()
        optimizer.step()
        if worker == 1 and step == 3:
            gossip(optimizer).flush()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize(
    ("topology", "averaging"), [("one_peer_exponential", "plain"), ("ring", "int4"), ("complete", "plain")]
)
def test_buckets_leave_in_one_order_whichever_is_ready_first(topology: str, averaging: str) -> None:
    usual, early = (run(3, out_of_turn, kind, topology, averaging) for kind in (False, True))
    for p, q in zip(usual, early, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(p, q, strict=True))


def written(worker: int) -> str:
    model = net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), "ring", bucket_mb=TINY, early=True)
    for step in range(2):
        loss(model, worker, step).backward()
        if step == 1:
            with torch.no_grad():
                model[4].bias.clamp_(-0.1, 0.1)  # its bucket has left
            try:
                optimizer.state_dict()
            except ParameterError as error:
                said = str(error)
        optimizer.step()
    try:
        gossip(optimizer).flush()
    except ParameterError as error:
        return said + str(error)
    return ""


def test_a_parameter_that_has_left_is_not_to_be_written_to() -> None:
    for said in run(3, written):
        assert "between backward() and step()" in said
        assert "was changed while its exchange was on the wire" in said


def too_late(worker: int, how: str) -> str:
    model = net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), "ring", bucket_mb=TINY, early=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=how == "scaler")
    try:
        for step in range(2):
            optimizer.zero_grad()
            scaler.scale(loss(model, worker, step)).backward()
            if how == "clip" and step == 1:
                nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            scaler.step(optimizer)
            scaler.update()
    except ParameterError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("how", "told"), [("clip", "clipping"), ("scaler", "a gradient scaler")])
def test_what_changes_gradients_after_backward_is_refused(how: str, told: str) -> None:
    assert all(told in said for said in run(2, too_late, how))
    assert run(2, too_late, "neither") == ["", ""]
