"""The engine against the papers' rules written as matrices, in float64, on every topology of six workers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hf_decentral import AccumAdam, AccumAdamW, decentralize, gossip
from hf_decentral.topology import TABLE, build
from hf_decentral.transport import Memory

WORKERS, SIZE, STEPS, RATE = 6, 5, 14, 0.05
SERVED = [name for name, entry in TABLE.items() if entry.serves(WORKERS)]
Array = np.ndarray


def curvature() -> Array:
    return np.random.default_rng(1).uniform(0.2, 1.0, (WORKERS, SIZE))


def gradient(x: Array) -> Array:
    """Every worker has a quadratic of its own."""
    return curvature() * (x - np.arange(WORKERS)[:, None])


class Quadratics(nn.Module):
    """All workers' parameters ``[W, P]``; calling it leaves the gradient."""

    def __init__(self, x: Array) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.from_numpy(x.copy()))

    def forward(self) -> None:
        self.x.grad = torch.from_numpy(gradient(self.x.detach().numpy()))


def start() -> Array:
    return np.random.default_rng(0).normal(size=(WORKERS, SIZE))


def trained(name: str, order: str, make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> Array:
    """The parameters after some steps of the engine, from different starting points."""
    model = Quadratics(start())
    optimizer = decentralize(
        make(list(model.parameters())), name, model=model, order=order, transport=Memory(WORKERS)
    )
    with torch.no_grad():
        model.x.copy_(torch.from_numpy(start()))
    for _ in range(STEPS):
        model()
        optimizer.step()
    return model.x.detach().numpy()


def matrices(name: str) -> list[Array]:
    topology = build(name, WORKERS)
    return [topology(step).matrix().numpy() for step in range(STEPS)]


def sgd(params: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=RATE)


@pytest.mark.parametrize("name", SERVED)
def test_adapt_while_combine(name: str) -> None:
    x = start()
    for m in matrices(name):
        x = m @ x - RATE * gradient(x)
    np.testing.assert_allclose(trained(name, "awc", sgd), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SERVED)
def test_adapt_then_combine(name: str) -> None:
    x = start()
    for m in matrices(name):
        x = m @ (x - RATE * gradient(x))
    np.testing.assert_allclose(trained(name, "atc", sgd), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SERVED)
def test_combine_then_adapt(name: str) -> None:
    x = start()
    for m in matrices(name):
        y = m @ x
        x = y - RATE * gradient(y)
    np.testing.assert_allclose(trained(name, "cta", sgd), x, rtol=0, atol=1e-12)


def test_adapt_then_combine_on_the_complete_graph_is_all_reduce() -> None:
    """SGD with momentum: the same as one worker with the mean gradient (algorithms of Lian et al. 2017)."""
    x, velocity = np.tile(start().mean(0), (WORKERS, 1)), np.zeros((1, SIZE))
    model = Quadratics(x)
    optimizer = decentralize(
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9),
        "complete",
        order="atc",
        transport=Memory(WORKERS),
    )
    for _ in range(STEPS):
        velocity = 0.9 * velocity + gradient(x).mean(0, keepdims=True)
        x = x - RATE * velocity
        model()
        optimizer.step()
    np.testing.assert_allclose(model.x.detach().numpy(), x, rtol=0, atol=1e-12)


def adam(accum: int, decay: float, decoupled: bool, ms: list[Array]) -> Array:
    """Adam's direction for each worker, moments never sent (DAdam; with ``accum`` > 1 AccumAdam)."""
    b1, b2, eps = 0.9, 0.98, 1e-8
    x = start()
    m1, m2, mean = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for t, m in enumerate(ms, 1):
        g, k = gradient(x), -(-t // accum)
        x = m @ x
        if decoupled:
            x = x * (1 - RATE * decay)
        else:
            g = g + decay * x
        mean += g / accum
        v1, v2 = b1 * m1 + (1 - b1) * g, b2 * m2 + (1 - b2) * g * g
        x = x - RATE * (v1 / (1 - b1**k)) / (np.sqrt(v2 / (1 - b2**k)) + eps)
        if t % accum == 0:
            m1, m2 = b1 * m1 + (1 - b1) * mean, b2 * m2 + (1 - b2) * mean * mean
            mean = np.zeros_like(mean)
    return x


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(("accum", "decoupled"), [(1, True), (1, False), (3, True), (3, False)])
def test_dadam_and_accumadam(name: str, foreach: bool, accum: int, decoupled: bool) -> None:
    def make(params: list[Tensor]) -> torch.optim.Optimizer:
        settings = {"lr": RATE, "betas": (0.9, 0.98), "weight_decay": 0.1, "foreach": foreach}
        if accum == 1:
            return (torch.optim.AdamW if decoupled else torch.optim.Adam)(params, **settings)
        return (AccumAdamW if decoupled else AccumAdam)(params, accum=accum, **settings)

    expected = adam(accum, 0.1, decoupled, matrices(name))
    np.testing.assert_allclose(trained(name, "awc", make), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SERVED)
def test_the_mean_moves_by_the_mean_update(name: str) -> None:
    """``mean(x+) = mean(x) + mean(u)`` for any doubly stochastic round, whatever the optimizer."""
    model = Quadratics(start())
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=RATE), name, transport=Memory(WORKERS))
    with torch.no_grad():
        model.x.copy_(torch.from_numpy(start()))
    for _ in range(STEPS):
        before = model.x.detach().numpy().copy()
        model()
        optimizer.step()
        moved = model.x.detach().numpy().mean(0) - before.mean(0)
        np.testing.assert_allclose(moved, -RATE * gradient(before).mean(0), rtol=0, atol=1e-13)


def test_the_complete_graph_leaves_only_the_last_updates_apart() -> None:
    """Adapt-while-combine, complete: ``x_i - mean(x) = u_i - mean(u)`` after every step."""
    model = Quadratics(start())
    optimizer = decentralize(
        torch.optim.SGD(model.parameters(), lr=RATE), "complete", transport=Memory(WORKERS)
    )
    for _ in range(3):
        model()
        update = -RATE * model.x.grad.numpy()
        optimizer.step()
        x = model.x.detach().numpy()
        np.testing.assert_allclose(x - x.mean(0), update - update.mean(0), rtol=0, atol=1e-12)
    spread = np.sqrt(np.square(x - x.mean(0)).sum(1).mean())
    assert gossip(optimizer).distance() == pytest.approx(spread, rel=1e-12)


def test_a_ring_of_thirds_bears_two_thirds_of_the_step() -> None:
    """Adapt-while-combine on equal quadratics grows from rate times curvature 1 + lambda_min on."""

    def grows(rate: float) -> bool:
        x = nn.Parameter(torch.tensor([[1.0], [-1.0]] * 3, dtype=torch.float64))
        optimizer = decentralize(torch.optim.SGD([x], lr=rate), "ring", transport=Memory(WORKERS))
        with torch.no_grad():
            x.copy_(torch.tensor([[1.0], [-1.0]] * 3))
        for _ in range(50):
            x.grad = x.detach().clone()
            optimizer.step()
        return float(x.detach().abs().max()) > 1

    assert not grows(0.66)
    assert grows(0.68)
