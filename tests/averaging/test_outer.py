"""Outer optimizers, push-sum and tracked moments against their rules, written out in float64."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_decentral.errors import MismatchError, SettingsError
from hf_decentral.optim import decentralize, gossip
from hf_decentral.rounds import Round
from hf_decentral.topology import Topology, build
from hf_decentral.transport import Memory
from tests.optim.cases import parameters, train_one, train_stacked
from tests.processes import run

WORKERS, SIZE, RATE, H = 6, 8, 0.05, 4  # eight numbers fill a bucket: fragments are equal parts of it
Array = np.ndarray
START = np.random.default_rng(3).normal(size=SIZE)


def gradient(x: Array) -> Array:
    """Every worker has a quadratic of its own."""
    curvature = np.random.default_rng(1).uniform(0.2, 1.0, (WORKERS, SIZE))
    return curvature * (x - np.arange(WORKERS)[:, None])


def local(x: Array, steps: int = H) -> Array:
    for _ in range(steps):
        x = x - RATE * gradient(x)
    return x


def engine(
    steps: int, topology: str | Topology = f"every({H}, complete)", start: Array | None = None, **how: Any
) -> Array:
    how = {"order": "atc", **how}
    x = torch.nn.Parameter(torch.from_numpy(np.tile(START, (WORKERS, 1))))
    optimizer = torch.optim.SGD([x], lr=RATE)
    decentralize(optimizer, topology, transport=Memory(WORKERS), **how)
    if start is not None:
        with torch.no_grad():
            x.copy_(torch.from_numpy(start))
    for _ in range(steps):
        x.grad = torch.from_numpy(gradient(x.detach().numpy()))
        optimizer.step()
    return x.detach().numpy()


def same(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=0, atol=1e-12)


def test_slowmo() -> None:
    anchor, u = START.copy(), np.zeros(SIZE)
    for _ in range(5):
        u = 0.6 * u + (anchor - local(np.tile(anchor, (WORKERS, 1))).mean(0)) / RATE
        anchor = anchor - 0.9 * RATE * u
    same(engine(5 * H, averaging="slowmo(0.6, 0.9)"), anchor)


@pytest.mark.parametrize("averaging", ["slowmo(0, 1)", "diloco(1, 0)"])
def test_without_momentum_it_is_local_sgd(averaging: str) -> None:
    same(engine(5 * H, averaging=averaging), engine(5 * H))


def test_slowmo_in_every_step_is_the_centralized_heavy_ball() -> None:
    x, velocity = START.copy(), np.zeros(SIZE)
    for _ in range(20):
        velocity = 0.7 * velocity + gradient(np.tile(x, (WORKERS, 1))).mean(0)
        x = x - RATE * velocity
    same(engine(20, "complete", averaging="slowmo(0.7, 1)"), x)


def nesterov(x: Array, way: Array, velocity: Array, rate: float, momentum: float) -> tuple[Array, Array]:
    velocity = momentum * velocity + way
    return x - rate * (way + momentum * velocity), velocity


def test_diloco() -> None:
    anchor, velocity = START.copy(), np.zeros(SIZE)
    for _ in range(5):
        way = anchor - local(np.tile(anchor, (WORKERS, 1))).mean(0)
        anchor, velocity = nesterov(anchor, way, velocity, 0.7, 0.9)
    same(engine(5 * H, averaging="diloco(0.7, 0.9)"), anchor)


def test_diloco_in_every_step_is_centralized_nesterov() -> None:
    x = torch.nn.Parameter(torch.from_numpy(START.copy()))
    optimizer = torch.optim.SGD([x], lr=RATE * 0.7, momentum=0.9, nesterov=True)
    for _ in range(20):
        x.grad = torch.from_numpy(gradient(np.tile(x.detach().numpy(), (WORKERS, 1))).mean(0))
        optimizer.step()
    same(engine(20, "complete", averaging="diloco(0.7, 0.9)"), x.detach().numpy())


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("fragments", [1, 3])
def test_streaming_diloco(delay: int, fragments: int) -> None:
    """A fragment leaves after each ``H`` steps and lands ``delay`` steps later."""
    x, anchor, velocity = np.tile(START, (WORKERS, 1)), START.copy(), np.zeros(SIZE)
    parts, rounds = np.array_split(np.arange(SIZE), fragments), 7
    left: dict[int, tuple[Array, Array]] = {}
    for step in range(1, rounds * H + delay + 1):
        x = local(x, 1)
        if step % H == 0:
            part = parts[(step // H - 1) % fragments]
            left[step + delay] = part, x[:, part].mean(0)
        if step in left:
            part, mean = left[step]
            way = anchor[part] - mean
            anchor[part], velocity[part] = nesterov(anchor[part], way, velocity[part], 0.7, 0.9)
            x[:, part] = 0.75 * anchor[part] + 0.25 * x[:, part]
    averaging = f"streaming_diloco({fragments}, 0.7, 0.9, 0.25)"
    same(engine(rounds * H + delay, averaging=averaging, delay=delay), x)


def test_streaming_diloco_in_one_fragment_is_diloco() -> None:
    same(engine(5 * H, averaging="streaming_diloco(1, 0.7, 0.9, 0)"), engine(5 * H, averaging="diloco"))


def test_with_alpha_one_workers_never_see_the_others() -> None:
    apart = local(np.tile(START, (WORKERS, 1)), 3 * H)
    same(engine(3 * H, averaging="streaming_diloco(2, 0.7, 0.9, 1)", delay=1), apart)


def test_noloco_of_all_is_diloco_with_a_heavy_ball() -> None:
    anchor, velocity = START.copy(), np.zeros(SIZE)
    for _ in range(6):
        way = anchor - local(np.tile(anchor, (WORKERS, 1))).mean(0)
        velocity = 0.5 * velocity + way
        anchor = anchor - 0.7 * velocity
    same(engine(6 * H, averaging="noloco(0.7, 0.5)"), anchor)


def test_noloco_in_pairs() -> None:
    """``m <- mu m + rate mean_g(x - anchor) + rate (mean_g(anchor) - anchor)``; anchors differ."""
    pairs = build("one_peer_exponential", WORKERS)
    x = np.tile(START, (WORKERS, 1))
    anchor, velocity = x.copy(), np.zeros_like(x)
    for k in range(6):
        m = pairs(k).matrix().numpy()
        way = local(anchor) - anchor
        velocity = 0.5 * velocity + 0.7 * m @ way + 0.7 * (m @ anchor - anchor)
        anchor = anchor + velocity
    found = engine(6 * H, f"every({H}, one_peer_exponential)", averaging="noloco(0.7, 0.5)")
    same(found, anchor)


def irregular() -> Topology:
    """Directed rounds whose columns sum to one and whose rows do not: each sends equal parts of all."""
    generator = np.random.default_rng(5)
    rounds = []
    for _ in range(3):
        m = (generator.random((WORKERS, WORKERS)) < 0.3) | np.eye(WORKERS, dtype=bool)
        m |= np.roll(np.eye(WORKERS, dtype=bool), 1, axis=0)
        rounds.append(Round.from_matrix(torch.from_numpy(m / m.sum(0))))
    return Topology.cycle("irregular", rounds)


@pytest.mark.parametrize("order", ["atc", "awc"])
def test_push_sum_on_directed_rounds(order: str) -> None:
    """SGP: ``n <- M (n - lr g(n / w))``; overlapped: ``n <- M n - lr g(n / w)``; ``w <- M w``."""
    topology = irregular()
    n, w = np.tile(START, (WORKERS, 1)), np.ones((WORKERS, 1))
    for step in range(30):
        m = topology(step).matrix().numpy()
        update = -RATE * gradient(n / w)
        n, w = (m @ (n + update), m @ w) if order == "atc" else (m @ n + update, m @ w)
    same(engine(30, topology, averaging="push_sum", order=order), n / w)
    assert np.ptp(w) > 0.1


def test_push_sum_finds_the_mean_where_plain_averages_do_not() -> None:
    start = np.random.default_rng(0).normal(size=(WORKERS, SIZE))
    topology, x = irregular(), torch.nn.Parameter(torch.zeros(WORKERS, SIZE, dtype=torch.float64))
    optimizer = torch.optim.SGD([x], lr=0.0)
    decentralize(optimizer, topology, order="atc", averaging="push_sum", transport=Memory(WORKERS))
    with torch.no_grad():
        x.copy_(torch.from_numpy(start))
    for _ in range(300):
        x.grad = torch.zeros_like(x)
        optimizer.step()
    np.testing.assert_allclose(x.detach().numpy(), np.tile(start.mean(0), (WORKERS, 1)), atol=1e-9)


@pytest.mark.parametrize("order", ["atc", "awc"])
def test_push_sum_is_the_plain_average_where_rows_sum_to_one_too(order: str) -> None:
    for name in ("one_peer_exponential", "ring", "complete"):
        same(engine(20, name, averaging="push_sum", order=order), engine(20, name, order=order))


def test_amsgrad_tracks_the_second_moments() -> None:
    """``u <- M u;  x <- M x - lr m / sqrt(max(u, least));  u <- u + v+ - v``."""
    m, least = build("ring", WORKERS)(0).matrix().numpy(), 1e-3
    x = np.tile(START, (WORKERS, 1))
    first, second = np.zeros_like(x), np.zeros_like(x)
    largest, tracked = np.full_like(x, least), np.full_like(x, least)
    for _ in range(20):
        g = gradient(x)
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
        tracked = m @ tracked
        x = m @ x - RATE * first / np.sqrt(np.maximum(tracked, least))
        tracked, largest = tracked - largest + np.maximum(largest, second), np.maximum(largest, second)
        np.testing.assert_allclose(tracked.sum(0), largest.sum(0), rtol=1e-12)
    same(engine(20, "ring", averaging="amsgrad(0.9, 0.99, 0.001)", order="awc"), x)


METHODS: dict[str, dict[str, Any]] = {
    "slowmo": {"topology": f"every({H}, complete)"},
    "diloco": {"topology": f"every({H}, complete)"},
    "noloco": {"topology": f"every({H}, one_peer_exponential)"},
    "streaming_diloco": {"topology": f"every({H}, complete)", "delay": 2},
    "amsgrad": {"topology": "ring", "order": "awc"},
    "push_sum": {"topology": "one_peer_exponential", "order": "awc"},
}


def one_worker(worker: int) -> dict[str, list[Tensor]]:
    found = {}
    for name, how in METHODS.items():
        params = [torch.nn.Parameter(p) for p in parameters(torch.float64)]
        optimizer = torch.optim.SGD(params, lr=RATE)
        decentralize(optimizer, averaging=name, **{"order": "atc", **how})
        train_one(params, optimizer, 20, worker)
        found[name] = [p.detach().clone() for p in params]
    return found


def test_four_processes_equal_the_simulator() -> None:
    there = run(4, one_worker)
    for name, how in METHODS.items():
        params = [torch.nn.Parameter(p.expand(4, *p.shape).clone()) for p in parameters(torch.float64)]
        optimizer = torch.optim.SGD(params, lr=RATE)
        decentralize(optimizer, averaging=name, transport=Memory(4), **{"order": "atc", **how})
        train_stacked(params, optimizer, 20, 4)
        for w in range(4):
            for p, q in zip(params, there[w][name], strict=True):
                torch.testing.assert_close(p[w], q, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("stop", [1, 4, 5, 6, 9])
def test_resume_gives_the_same_bits(name: str, stop: int) -> None:
    def made() -> tuple[Tensor, torch.optim.Optimizer]:
        x = torch.nn.Parameter(torch.from_numpy(np.tile(START, (WORKERS, 1))))
        optimizer = torch.optim.SGD([x], lr=RATE, momentum=0.0 if name == "amsgrad" else 0.9)
        how = {"order": "atc", **METHODS[name]}
        return x, decentralize(optimizer, averaging=name, transport=Memory(WORKERS), **how)

    def trained(x: Tensor, optimizer: torch.optim.Optimizer, steps: int) -> Array:
        for _ in range(steps):
            x.grad = torch.from_numpy(gradient(x.detach().numpy()))
            optimizer.step()
        return x.detach().numpy().copy()

    whole = trained(*made(), 14)
    x, optimizer = made()
    trained(x, optimizer, stop)
    saved = io.BytesIO()
    torch.save({"x": x.detach(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    again, resumed = made()
    with torch.no_grad():
        again.copy_(loaded["x"])
    resumed.load_state_dict(loaded["optimizer"])
    assert np.array_equal(trained(again, resumed, 14 - stop), whole)


def test_push_sum_is_united_for_good() -> None:
    """What the weights were before is forgotten: the next step moves by the gradient alone."""
    x = torch.nn.Parameter(torch.from_numpy(np.tile(START, (WORKERS, 1))))
    optimizer = torch.optim.SGD([x], lr=RATE)
    decentralize(optimizer, irregular(), order="atc", averaging="push_sum", transport=Memory(WORKERS))
    for _ in range(5):
        x.grad = torch.from_numpy(gradient(x.detach().numpy()))
        optimizer.step()
    gossip(optimizer).unite(torch.nn.Module())
    united = x.detach().clone()
    assert torch.equal(united, united[:1].expand_as(united))
    x.grad = torch.zeros_like(x)
    optimizer.step()
    torch.testing.assert_close(x.detach(), united, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["slowmo", "diloco", "noloco", "streaming_diloco", "push_sum", "amsgrad"])
def test_what_is_remembered_of_half_precision_is_wider(name: str) -> None:
    x = torch.nn.Parameter(torch.ones(4, 16, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([x], lr=0.001)
    how = {"order": "atc", **METHODS[name]}
    decentralize(optimizer, averaging=name, transport=Memory(4), **how)
    for _ in range(9):
        x.grad = torch.ones_like(x)
        optimizer.step()
    assert x.isfinite().all()
    state = optimizer.state_dict()["hf_decentral"]["states"][0]
    kept = [t for k, t in state.items() if isinstance(t, torch.Tensor) and k != "snapshot"]
    assert kept
    assert all(t.dtype == torch.float32 for t in kept)


def test_a_state_in_flight_is_not_loaded_under_another_delay() -> None:
    def made(delay: int | None) -> tuple[Tensor, torch.optim.Optimizer]:
        x = torch.nn.Parameter(torch.ones(4, 8))
        optimizer = torch.optim.SGD([x], lr=0.1)
        return x, decentralize(optimizer, "every(8, ring)", delay=delay, transport=Memory(4))

    x, optimizer = made(4)
    for _ in range(9):
        x.grad = torch.ones_like(x)
        optimizer.step()
    with pytest.raises(MismatchError, match="delay"):
        made(None)[1].load_state_dict(optimizer.state_dict())


def test_slowmo_bears_a_rate_of_zero() -> None:
    x = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = torch.optim.SGD([x], lr=0.0)
    decentralize(optimizer, "complete", order="atc", averaging="slowmo", transport=Memory(2))
    x.grad = torch.ones_like(x)
    optimizer.step()
    assert torch.equal(x, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("averaging", "how", "told"),
    [
        ("slowmo", {"topology": "ring"}, "mean of all workers"),
        ("diloco", {"order": "awc"}, "order 'atc'"),
        ("slowmo(1)", {}, "momentum=1"),
        ("diloco(0)", {}, "uter rate=0"),
        ("streaming_diloco(0)", {}, "fragments=0"),
        ("streaming_diloco(4, 0.7, 0.9, 2)", {}, "alpha=2"),
        ("push_sum", {"order": "cta"}, "order 'atc' or 'awc'"),
        ("push_sum", {"delay": 2}, "Expected delay=0"),
    ],
)
def test_what_cannot_be_composed(averaging: str, how: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        engine(1, averaging=averaging, **how)
