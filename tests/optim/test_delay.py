"""Exchanges that travel for several local steps."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_decentral.errors import SettingsError
from hf_decentral.optim import decentralize
from hf_decentral.topology import build
from hf_decentral.transport import Memory
from tests.optim.cases import parameters, train_one, train_stacked
from tests.processes import run

WORKERS, SIZE, RATE = 6, 5, 0.05
TAU = 3
Array = np.ndarray


def gradient(x: Array) -> Array:
    """Every worker has a quadratic of its own."""
    curvature = np.random.default_rng(1).uniform(0.2, 1.0, (WORKERS, SIZE))
    return curvature * (x - np.arange(WORKERS)[:, None])


def made(
    order: str, delay: int | None, topology: str = f"every({TAU}, ring)"
) -> tuple[Tensor, torch.optim.Optimizer]:
    x = torch.nn.Parameter(torch.zeros(WORKERS, SIZE, dtype=torch.float64))
    optimizer = torch.optim.SGD([x], lr=RATE)
    return x, decentralize(optimizer, topology, order=order, delay=delay, transport=Memory(WORKERS))


def trained(x: Tensor, optimizer: torch.optim.Optimizer, steps: int) -> Array:
    for _ in range(steps):
        x.grad = torch.from_numpy(gradient(x.detach().numpy()))
        optimizer.step()
    return x.detach().numpy().copy()


def test_oldsgd_sends_a_snapshot_and_adds_what_it_gains() -> None:
    """``tau`` local steps from a snapshot ``s``, the last of them with ``(M - I) s`` (arXiv 2601.01493)."""
    ring = build("ring", WORKERS)(0).matrix().numpy()
    x = np.zeros((WORKERS, SIZE))
    for _ in range(TAU - 1):  # the first round is that of step tau - 1
        x = x - RATE * gradient(x)
    for _ in range(4):
        snapshot, updates = x.copy(), 0.0
        for _ in range(TAU):
            updates = updates + gradient(x)
            x = x - RATE * gradient(x)
        x = ring @ snapshot - RATE * updates
    np.testing.assert_allclose(trained(*made("awc", TAU), 4 * TAU + TAU - 1), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("order", "delay"), [("awc", 1), ("atc", 0)])
def test_the_least_delay_is_the_order_itself(order: str, delay: int) -> None:
    assert np.array_equal(trained(*made(order, delay), 20), trained(*made(order, None), 20))


def test_the_mean_moves_by_the_mean_update_in_every_step() -> None:
    x, optimizer = made("awc", TAU)
    for _ in range(4 * TAU):
        before = x.detach().numpy().copy()
        trained(x, optimizer, 1)
        moved = x.detach().numpy().mean(0) - before.mean(0)
        np.testing.assert_allclose(moved, -RATE * gradient(before).mean(0), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("order", "delay"), [("awc", TAU), ("atc", TAU - 1), ("atc", 1)])
@pytest.mark.parametrize("stop", range(1, 8))
def test_resume_sends_again_what_was_on_the_wire(order: str, delay: int, stop: int) -> None:
    whole = trained(*made(order, delay), 12)
    x, optimizer = made(order, delay)
    trained(x, optimizer, stop)
    saved = io.BytesIO()
    torch.save({"x": x.detach(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    again, resumed = made(order, delay)
    with torch.no_grad():
        again.copy_(loaded["x"])
    resumed.load_state_dict(loaded["optimizer"])
    assert np.array_equal(trained(again, resumed, 12 - stop), whole)


def test_pieces_land_when_the_whole_would() -> None:
    results = []
    for bucket_mb in (4.0, 1e-5):
        params = [torch.nn.Parameter(p.expand(4, *p.shape).clone()) for p in parameters()]
        optimizer = torch.optim.Adam(params, lr=RATE)
        how = {"order": "awc", "delay": TAU, "bucket_mb": bucket_mb, "transport": Memory(4)}
        decentralize(optimizer, f"every({TAU}, ring)", **how)
        train_stacked(params, optimizer, 3 * TAU + 1, 4)
        results.append([p.detach().clone() for p in params])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def one_worker(worker: int) -> list[list[Tensor]]:
    found = []
    for order, delay in (("awc", TAU), ("atc", 2)):
        params = [torch.nn.Parameter(p) for p in parameters()]
        optimizer = torch.optim.Adam(params, lr=RATE)
        train_one(
            params,
            decentralize(optimizer, f"every({TAU}, one_peer_exponential)", order=order, delay=delay),
            20,
            worker,
        )
        found.append([p.detach().clone() for p in params])
    return found


def test_four_processes_equal_the_simulator() -> None:
    there = run(4, one_worker)
    for k, (order, delay) in enumerate((("awc", TAU), ("atc", 2))):
        params = [torch.nn.Parameter(p.expand(4, *p.shape).clone()) for p in parameters()]
        optimizer = torch.optim.Adam(params, lr=RATE)
        decentralize(
            optimizer, f"every({TAU}, one_peer_exponential)", order=order, delay=delay, transport=Memory(4)
        )
        train_stacked(params, optimizer, 20, 4)
        for w in range(4):
            assert all(torch.equal(p[w], q) for p, q in zip(params, there[w][k], strict=True))


@pytest.mark.parametrize(
    ("order", "delay", "topology", "told"),
    [
        ("awc", 0, "ring", "delay=0"),
        ("atc", -1, "ring", "delay=-1"),
        ("awc", 1.5, "ring", "delay=1.5"),
        ("awc", 2, "ring", "closer"),
        ("awc", 4, "every(3, ring)", "closer"),
        ("atc", 3, "every(3, ring)", "closer"),
        ("awc", 4, "then(every(8, ring), 300, ring)", "closer"),
        ("awc", 3, "above(0.1, every(3, ring))", "closer"),
    ],
)
def test_delays_that_cannot_be(order: str, delay: int, topology: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        made(order, delay, topology)
