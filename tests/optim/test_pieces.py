"""A local step in pieces is the step in one piece, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hf_decentral import gossip
from hf_decentral.averaging import TABLE, build
from hf_decentral.errors import SettingsError
from hf_decentral.optim import decentralize
from hf_decentral.optim.pieces import SEPARABLE
from hf_decentral.transport import Memory
from tests.optim.cases import parameters, train_one, train_stacked
from tests.processes import run

WORKERS, STEPS = 4, 7
TINY, WHOLE = 1e-5, 100.0  # megabytes of a bucket: one parameter each, or all in one


def stacked(kind: type[torch.optim.Optimizer], bucket_mb: float, averaging: str = "plain") -> list[Tensor]:
    params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]
    optimizer = kind([{"params": params[:2]}, {"params": params[2:], "lr": 0.01}], lr=0.02)  # type: ignore[call-arg]
    decentralize(optimizer, "ring", averaging=averaging, transport=Memory(WORKERS), bucket_mb=bucket_mb)
    train_stacked(params, optimizer, STEPS, WORKERS)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]
    assert gossip(optimizer).step == STEPS
    return [p.detach().clone() for p in params]


def one_by_one(averaging: str) -> bool:
    """Whether a method for this order and topology treats every number by itself."""
    together = {"choco", "deepsqueeze", "int4", "int8", "low_rank", "powergossip", "random_k", "top_k"}
    method = build(averaging)
    anyhow = method.check_optimizer is None and "awc" in method.orders and not method.whole
    return anyhow and averaging not in together


@pytest.mark.parametrize("kind", SEPARABLE, ids=lambda kind: kind.__name__)
def test_pieces_make_no_difference(kind: type[torch.optim.Optimizer]) -> None:
    whole, pieces = stacked(kind, WHOLE), stacked(kind, TINY)
    assert all(torch.equal(a, b) for a, b in zip(whole, pieces, strict=True))


@pytest.mark.parametrize("averaging", sorted(name for name in TABLE if one_by_one(name)))
def test_nor_where_numbers_are_encoded_one_by_one(averaging: str) -> None:
    whole, pieces = (stacked(torch.optim.Adam, size, averaging) for size in (WHOLE, TINY))
    assert all(torch.equal(a, b) for a, b in zip(whole, pieces, strict=True))


def trained(worker: int, bucket_mb: float, averaging: str) -> tuple[list[Tensor], int]:
    params = [torch.nn.Parameter(p) for p in parameters()]
    optimizer = torch.optim.AdamW(params, lr=0.05)
    decentralize(optimizer, "one_peer_exponential", averaging=averaging, bucket_mb=bucket_mb)
    train_one(params, optimizer, STEPS, worker)
    handle = gossip(optimizer)
    lanes = len(handle.flats())
    return [p.detach().clone() for p in params], lanes


@pytest.mark.parametrize("averaging", ["plain", "bf16"])
def test_processes_agree_with_one_bucket(averaging: str) -> None:
    for (whole, one), (pieces, several) in zip(
        run(3, trained, WHOLE, averaging), run(3, trained, TINY, averaging), strict=True
    ):
        assert (one, several) == (1, 3)
        assert all(torch.equal(a, b) for a, b in zip(whole, pieces, strict=True))


class Restless(torch.optim.SGD):
    """Counts its steps; nobody may call it more often than the user does."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return super().step(closure)


def test_an_optimizer_that_may_look_at_all_parameters_steps_once() -> None:
    params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]
    optimizer = Restless(params, lr=0.1)
    decentralize(optimizer, "ring", transport=Memory(WORKERS), bucket_mb=TINY)
    train_stacked(params, optimizer, STEPS, WORKERS)
    assert optimizer.steps == STEPS


def test_tied_parameters_stay_in_one_bucket() -> None:
    tied = torch.nn.Parameter(torch.ones(2, 50))
    other = torch.nn.Parameter(torch.ones(2, 50))
    same = torch.nn.Parameter(tied.data)
    optimizer = torch.optim.SGD([tied, other, same], lr=0.1)
    decentralize(optimizer, "ring", transport=Memory(2), bucket_mb=TINY)
    for _ in range(3):
        for p in (tied, other, same):
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert tied.data_ptr() == same.data_ptr()
    assert torch.allclose(tied, torch.full((2, 50), 1 - 0.6))


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan")])
def test_a_bucket_must_hold_something(size: float) -> None:
    with pytest.raises(SettingsError, match="bucket_mb"):
        decentralize(torch.optim.SGD([torch.ones(1)], lr=0.1), "ring", bucket_mb=size)


def test_an_error_inside_a_piece_leaves_the_optimizer_whole() -> None:
    params = [torch.nn.Parameter(torch.zeros(2, 100)) for _ in range(4)]
    optimizer = torch.optim.SGD(params, lr=0.1)
    decentralize(optimizer, "complete", bucket_mb=1e-5, transport=Memory(2))

    def step() -> None:
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()

    step()
    kept, optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"], "no number"
    with pytest.raises(TypeError):
        step()
    optimizer.param_groups[0]["lr"] = kept
    assert len(optimizer.state_dict()["param_groups"][0]["params"]) == 4
