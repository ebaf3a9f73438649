"""Methods that correct for momentum, delay or unequal data, against their rules as matrices in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_decentral import decentralize, gossip
from hf_decentral.averaging import State
from hf_decentral.averaging import build as build_method
from hf_decentral.averaging.d2 import growth
from hf_decentral.errors import SettingsError
from hf_decentral.rounds import Round
from hf_decentral.topology import Topology
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory

WORKERS, SIZE, STEPS, RATE, BETA = 6, 5, 25, 0.05, 0.9
STATIC = ("lazy(ring)", "complete")
ANY = ("ring", "complete", "aer", "one_peer_exponential", "every(3, ring)")
Array = np.ndarray
Rule = Callable[[Array, Array, int], Array]

H = np.random.default_rng(1).uniform(0.5, 2.0, (WORKERS, SIZE))
A = np.random.default_rng(2).normal(size=(WORKERS, SIZE))
START = np.random.default_rng(0).normal(size=SIZE)
OPTIMUM = (H * A).sum(0) / H.sum(0)


def gradient(x: Array) -> Array:
    """Every worker has a quadratic of its own; the optimum of their sum is known."""
    return H * (x - A)


def losses(x: Array) -> Array:
    return 0.5 * (H * (x - A) ** 2).sum(1)


def fall(step: int) -> float:
    """A rate that begins at 0, as a warm-up does, and changes in every step."""
    return RATE * min(step, 5) / 5 * (1 + math.cos(step / STEPS)) / 2


def steady(step: int) -> float:
    return RATE


class Training:
    """All workers in one process, each with one vector of parameters in several buckets."""

    def __init__(self, method: str, topology: str | Topology, order: str = "atc", momentum: float = 0.0):
        cut = (slice(0, 2), slice(2, SIZE))
        self.params = [
            torch.nn.Parameter(torch.from_numpy(np.tile(START[part], (WORKERS, 1)))) for part in cut
        ]
        self.optimizer = torch.optim.SGD(self.params, lr=RATE, momentum=momentum)
        decentralize(
            self.optimizer,
            topology,
            order=order,
            averaging=method,
            transport=Memory(WORKERS),
            bucket_mb=1e-6,
        )
        self.done = 0

    @property
    def x(self) -> Array:
        return np.concatenate([p.detach().numpy() for p in self.params], 1).copy()

    def step(self, rate: float) -> None:
        x = self.x
        for p, g in zip(self.params, np.split(gradient(x), [2], axis=1), strict=True):
            p.grad = torch.from_numpy(g.copy())
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        gossip(self.optimizer).loss = torch.from_numpy(losses(x))
        self.optimizer.step()
        self.done += 1

    def run(self, steps: int = STEPS, rates: Callable[[int], float] = steady) -> Array:
        for _ in range(steps):
            self.step(rates(self.done))
        return self.x

    def remembered(self, name: str) -> Array:
        """An item of the checkpoint, in the order of the parameters."""
        states = self.optimizer.state_dict()["hf_decentral"]["states"]
        rows = [state[name].numpy() for state in states]
        assert len(rows) == 2
        return np.concatenate([rows[1][:, :2], rows[0][:, : SIZE - 2]], 1)


def matrices(topology: str | Topology, steps: int = STEPS) -> list[Array]:
    if isinstance(topology, str):
        topology = build_topology(topology, WORKERS)
    return [topology(step).matrix().numpy() for step in range(steps)]


def begin() -> Array:
    return np.tile(START, (WORKERS, 1))


def same(found: Array, expected: Array, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def plain(topology: str, steps: int = STEPS, rates: Callable[[int], float] = steady) -> Array:
    """Adapt, then combine."""
    x = begin()
    for t, m in enumerate(matrices(topology, steps)):
        x = m @ (x - rates(t) * gradient(x))
    return x


def is_optimal(x: Array) -> bool:
    return bool(np.abs(x - OPTIMUM).max() < 1e-9)


# -- gradient tracking


@pytest.mark.parametrize("topology", ANY)
def test_gradient_tracking_in_the_form_of_corrections(topology: str) -> None:
    x, c = begin(), np.zeros((WORKERS, SIZE))
    for m in matrices(topology):
        u = -RATE * gradient(x)
        x, c = m @ (x + u + c), m @ (c + u) - u
    training = Training("gradient_tracking", topology)
    same(training.run(), x)
    same(RATE * training.remembered("correction"), c)


@pytest.mark.parametrize("rates", [steady, fall])
@pytest.mark.parametrize("topology", ANY)
def test_gradient_tracking_in_the_form_of_trackers(topology: str, rates: Callable[[int], float]) -> None:
    """The tracker is in units of the gradient, so that the rate may change."""
    x, y, before = begin(), gradient(begin()), gradient(begin())
    for t, m in enumerate(matrices(topology)):
        if rates(t):
            x = m @ (x - rates(t) * y)
            y = m @ y + gradient(x) - before
            before = gradient(x)
        else:
            assert t == 0 and np.array_equal(x, begin())
    same(Training("gradient_tracking", topology).run(STEPS, rates), x)


@pytest.mark.parametrize("topology", ["ring", "aer", "one_peer_exponential"])
def test_corrections_of_gradient_tracking_sum_to_nothing_and_the_end_is_exact(topology: str) -> None:
    training = Training("gradient_tracking", topology)
    for _ in range(10):
        training.run(30, lambda step: 0.1)
        same(training.remembered("correction").sum(0), np.zeros(SIZE))
    assert is_optimal(training.x)
    same(training.remembered("correction"), gradient(training.x), 1e-8)  # c = g - mean(g), which is 0
    assert not is_optimal(plain(topology, 300, lambda step: 0.1))


def test_gradient_tracking_under_momentum_is_exact_too() -> None:
    training = Training("gradient_tracking", "ring", momentum=0.5)
    assert is_optimal(training.run(250, lambda step: 0.1))


def test_a_rate_for_each_group() -> None:
    """One bucket may hold parameters of several rates."""
    rates = np.array([0.05] * 2 + [0.02] * 3)
    for method in ("gradient_tracking", "qg_dsgdm", "decentlam", "al_dsgd"):
        params = [torch.nn.Parameter(torch.from_numpy(begin()[:, part])) for part in (slice(2), slice(2, 5))]
        groups = [{"params": params[:1], "lr": 0.05}, {"params": params[1:], "lr": 0.02}]
        optimizer = torch.optim.SGD(groups)
        decentralize(optimizer, "ring", order="atc", averaging=method, transport=Memory(WORKERS))
        for _ in range(STEPS):
            x = np.concatenate([p.detach().numpy() for p in params], 1)
            for p, g in zip(params, np.split(gradient(x), [2], axis=1), strict=True):
                p.grad = torch.from_numpy(g.copy())
            gossip(optimizer).loss = torch.from_numpy(losses(x))
            optimizer.step()
        found = np.concatenate([p.detach().numpy() for p in params], 1)
        assert len(gossip(optimizer).flats()) == 1
        m, expected = matrices("ring")[0], RULES[method](rates)
        x = begin()
        for _ in range(STEPS):
            x = expected(m, x)
        same(found, x)


# -- D2


@pytest.mark.parametrize("topology", STATIC)
def test_d2_in_two_forms(topology: str) -> None:
    m = matrices(topology)[0]
    before, x = begin(), m @ (begin() - RATE * gradient(begin()))
    y, c = begin(), np.zeros((WORKERS, SIZE))
    for t in range(STEPS):
        half = y - RATE * gradient(y)
        y = m @ (half + c)
        c = y - half
        if t:
            x, before = m @ (2 * x - before - RATE * (gradient(x) - gradient(before))), x
    training = Training("d2", topology)
    same(training.run(), y)
    same(training.x, x)
    same(training.remembered("correction"), c)
    same(c.sum(0), np.zeros(SIZE))


@pytest.mark.parametrize("topology", STATIC)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_d2_ends_in_the_optimum(topology: str, momentum: float) -> None:
    assert is_optimal(Training("d2", topology, momentum=momentum).run(250, lambda step: 0.1))


@pytest.mark.parametrize("topology", ["ring", "lazy(ring)", "complete", "one_peer_exponential"])
@pytest.mark.parametrize("workers", [3, 5, 6, 8])
def test_growth_is_the_radius_of_two_steps(topology: str, workers: int) -> None:
    weights = build_topology(topology, workers)(0).matrix()
    rest = (weights - 1 / workers).numpy()
    step = np.block([[2 * rest, -rest], [np.eye(workers), np.zeros((workers, workers))]])
    # Double roots are found to the root of the precision.
    assert growth(weights) == pytest.approx(np.abs(np.linalg.eigvals(step)).max(), abs=1e-6)


def test_growth_begins_at_minus_a_third() -> None:
    def weights(own: float) -> Tensor:  # eigenvalues own + (1 - own) cos: the smallest is 2 own - 1
        side = (1 - own) / 2
        return sum(
            (
                w * torch.roll(torch.eye(6, dtype=torch.float64), k, 0)
                for k, w in ((0, own), (1, side), (-1, side))
            ),
            torch.zeros(6, 6, dtype=torch.float64),
        )

    assert growth(weights(0.34)) < 1
    assert growth(weights(1 / 3)) == pytest.approx(1, abs=1e-9)
    assert growth(weights(0.32)) > 1


# -- quasi-global momentum


@pytest.mark.parametrize("rates", [steady, fall])
@pytest.mark.parametrize("topology", ANY)
def test_quasi_global_momentum(topology: str, rates: Callable[[int], float]) -> None:
    x, momentum = begin(), np.zeros((WORKERS, SIZE))
    for t, m in enumerate(matrices(topology)):
        after = m @ (x - rates(t) * (BETA * momentum + gradient(x)))
        momentum = BETA * momentum + ((1 - BETA) * (x - after) / rates(t) if rates(t) else 0.0)
        x = after
    training = Training("qg_dsgdm", topology)
    same(training.run(STEPS, rates), x)
    same(training.remembered("momentum"), momentum)


def test_quasi_global_momentum_of_all_is_one_of_the_mean_gradient() -> None:
    x, m = START.copy(), np.zeros(SIZE)
    for _ in range(STEPS):
        d = BETA * m + gradient(np.tile(x, (WORKERS, 1))).mean(0)
        x, m = x - RATE * d, BETA * m + (1 - BETA) * d
    same(Training("qg_dsgdm", "complete").run(), np.tile(x, (WORKERS, 1)))


@pytest.mark.parametrize("method", ["qg_dsgdm", "decentlam"])
@pytest.mark.parametrize("topology", ["aer", "ring"])
def test_one_worker_has_the_momentum_too(method: str, topology: str) -> None:
    p = torch.nn.Parameter(torch.from_numpy(START.copy()))
    optimizer = torch.optim.SGD([p], lr=RATE)
    decentralize(optimizer, topology, order="atc", averaging=method, transport=Memory(1))
    x, m = START.copy(), np.zeros(SIZE)
    for _ in range(STEPS):
        p.grad = torch.from_numpy((H * (p.detach().numpy() - A))[0].copy())
        optimizer.step()
        d = BETA * m + H[0] * (x - A[0])
        x, m = x - RATE * d, (BETA * m + (1 - BETA) * d if method == "qg_dsgdm" else d)
    np.testing.assert_allclose(p.detach().numpy(), x, rtol=0, atol=1e-12)
    assert gossip(optimizer).distance() == 0
    assert gossip(optimizer).sent_bytes == 0


@pytest.mark.parametrize("method", ["qg_dsgdm(0)", "decentlam(0)", "al_dsgd(0, 0)"])
def test_without_its_momentum_or_pull_it_is_a_plain_average(method: str) -> None:
    same(Training(method, "ring").run(), plain("ring"))


# -- DecentLaM


@pytest.mark.parametrize("rates", [steady, fall])
@pytest.mark.parametrize("topology", ["ring", *STATIC])
def test_decentlam(topology: str, rates: Callable[[int], float]) -> None:
    x, momentum = begin(), np.zeros((WORKERS, SIZE))
    for t, m in enumerate(matrices(topology)):
        rate = rates(t)
        if not rate:
            continue  # equal workers stay equal
        momentum = BETA * momentum + (x - m @ (x - rate * gradient(x))) / rate
        x = x - rate * momentum
    same(Training("decentlam", topology).run(STEPS, rates), x)


def test_the_momentum_of_decentlam_adds_no_bias() -> None:
    def rate(step: int) -> float:
        return 0.02

    slow, fast = plain("ring", 3000, rate), plain("ring", 1000, lambda step: 10 * rate(step))
    same(Training("decentlam", "ring").run(700, rate), slow, 1e-8)
    same(Training("plain", "ring", momentum=BETA).run(700, rate), fast, 1e-8)  # local momentum
    bias = [np.linalg.norm(x.mean(0) - OPTIMUM) for x in (slow, fast)]
    assert bias[1] > 3 * bias[0]


# -- delay compensation


def compensated(g: Array, moved: Array, lam: float) -> Array:
    curved = g * g * moved
    norms = [np.linalg.norm(each[:, part], axis=1, keepdims=True) for each in (g, curved) for part in PARTS]
    first, second, below, beyond = norms
    scale = np.concatenate(
        [np.tile(first / np.maximum(below, 1e-300), 2), np.tile(second / np.maximum(beyond, 1e-300), 3)], 1
    )
    return g + np.where(np.abs(moved) < 1e-14, 0.0, lam * scale * curved)


PARTS = (slice(0, 2), slice(2, SIZE))  # the buckets of Training


@pytest.mark.parametrize("topology", ["complete", "every(3, complete)", "ring"])
def test_delay_compensation(topology: str) -> None:
    x = begin()
    for m in matrices(topology):
        x = m @ x - RATE * compensated(gradient(x), m @ x - x, 0.2)
    same(Training("dc_s3gd", topology, "awc").run(), x)


def test_delay_compensation_of_nothing_is_plain() -> None:
    found = Training("dc_s3gd(0)", "complete", "awc", momentum=0.5).run()
    assert np.array_equal(found, Training("plain", "complete", "awc", momentum=0.5).run())


def test_delay_compensation_is_exact_on_a_quadratic_where_it_has_its_curvature() -> None:
    """``lam' g g = h``: then the gradient is that of the point where the step starts."""
    h, here, there = 1.7, 0.4, -0.3
    g = h * here
    lam = h * abs(there - here) / abs(g)  # lam' = lam |g| / |g g D| = h / g^2
    method = build_method(f"dc_s3gd({lam})")
    x, mean = (torch.full((1, 1), value, dtype=torch.float64) for value in (here, there))
    state = State()
    exchange = method(x, Round.identity(1), state)
    next(exchange)
    with pytest.raises(StopIteration):
        exchange.send(mean)
    state.local.stale = True
    found = torch.full((1, 1), g, dtype=torch.float64)
    assert method.gradient is not None
    method.gradient(found, mean, state)
    assert float(found) == pytest.approx(h * there, abs=1e-14)


def test_a_gradient_taken_at_the_average_is_not_corrected() -> None:
    training = Training("dc_s3gd", "complete", "awc")
    x, m = begin(), matrices("complete")[0]
    for t in range(STEPS):
        flushed = t % 3 == 2
        if flushed:
            gossip(training.optimizer).flush()
            x = m @ x
            same(training.x, x)
        training.step(RATE)
        moved = 0 * x if flushed else m @ x - x
        x = x + moved - RATE * compensated(gradient(x), moved, 0.2)
    same(training.x, x)


# -- adjacent leaders


def star() -> Topology:
    """Worker 2 hears all others, who hear only it."""
    weights = torch.zeros(WORKERS, WORKERS, dtype=torch.float64)
    weights[2], weights[:, 2] = 1 / WORKERS, 1 / WORKERS
    for i in range(WORKERS):
        weights[i, i] = 1 - (weights[i].sum() - weights[i, i])
    return Topology.cycle("star", [Round.from_matrix(weights)])


def led(x: Array, m: Array, rate: Array | float, best: float, degree: float) -> Array:
    told = losses(x)
    half = x - rate * gradient(x)
    if np.array_equal(m, np.eye(WORKERS)):
        return half
    for i in range(WORKERS):
        heard = [i, *(j for j in range(WORKERS) if m[i, j] and j != i)]
        b = min(heard, key=lambda j: told[j])
        d = max(heard, key=lambda j: np.count_nonzero(m[j]))
        half[i] -= rate * best * (x[i] - x[b]) + rate * degree * (x[i] - x[d])
    return m @ half


@pytest.mark.parametrize("strengths", [(0.1, 0.1), (0.7, 0.0), (0.0, 0.7), (0.5, 1.5)])
@pytest.mark.parametrize("topology", [*ANY, "star"])
def test_adjacent_leaders(topology: str, strengths: tuple[float, float]) -> None:
    rounds: str | Topology = star() if topology == "star" else topology
    x = begin()
    for m in matrices(rounds):
        x = led(x, m, RATE, *strengths)
    found = Training(f"al_dsgd{strengths}", rounds).run()
    same(found, x)


def test_pulls_do_not_keep_the_mean() -> None:
    training = Training("al_dsgd(5, 0)", "lazy(ring)")
    training.run(5)
    x = training.x
    training.step(RATE)
    assert np.abs(training.x.mean(0) - (x - RATE * gradient(x)).mean(0)).max() > 1e-3


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_never_leads(loss: float) -> None:
    def trained(change: Callable[[Tensor], Tensor]) -> Array:
        training = Training("al_dsgd(1, 0)", "ring")
        training.run(3)
        x = training.x
        for p, g in zip(training.params, np.split(gradient(x), [2], axis=1), strict=True):
            p.grad = torch.from_numpy(g.copy())
        gossip(training.optimizer).loss = change(torch.from_numpy(losses(x)))
        training.optimizer.step()
        return training.x

    first = int(losses(Training("al_dsgd(1, 0)", "ring").run(3)).argmin())
    bad, worst = (
        trained(lambda told, value=value: told.index_fill(0, torch.tensor(first), value))  # type: ignore[misc]
        for value in (loss, 1e9)
    )
    assert np.isfinite(bad).all()
    assert np.array_equal(bad, worst)
    assert not np.array_equal(bad, trained(lambda told: told))


def test_without_losses_nobody_leads_by_them(caplog: pytest.LogCaptureFixture) -> None:
    training = Training("al_dsgd", "ring")
    for _ in range(STEPS):
        for p, g in zip(training.params, np.split(gradient(training.x), [2], axis=1), strict=True):
            p.grad = torch.from_numpy(g.copy())
        training.optimizer.step()
    same(training.x, plain("ring"))


def test_losses_of_other_workers_are_refused() -> None:
    training = Training("al_dsgd", "ring")
    for p in training.params:
        p.grad = torch.zeros_like(p)
    gossip(training.optimizer).loss = torch.zeros(3)
    with pytest.raises(SettingsError, match="holds 3 numbers"):
        training.optimizer.step()


# -- rules of several rates, and what is refused


def tracking(rates: Array) -> Callable[[Array, Array], Array]:
    c = np.zeros((WORKERS, SIZE))

    def step(m: Array, x: Array) -> Array:
        nonlocal c
        u = -rates * gradient(x)
        x, c = m @ (x + u + c), m @ (c + u) - u
        return x

    return step


def quasi_global(rates: Array) -> Callable[[Array, Array], Array]:
    momentum = np.zeros((WORKERS, SIZE))

    def step(m: Array, x: Array) -> Array:
        nonlocal momentum
        after = m @ (x - rates * (BETA * momentum + gradient(x)))
        momentum = BETA * momentum + (1 - BETA) * (x - after) / rates
        return after

    return step


def large_batch(rates: Array) -> Callable[[Array, Array], Array]:
    momentum = np.zeros((WORKERS, SIZE))

    def step(m: Array, x: Array) -> Array:
        nonlocal momentum
        momentum = BETA * momentum + (x - m @ (x - rates * gradient(x))) / rates
        return x - rates * momentum

    return step


RULES: dict[str, Callable[[Array], Callable[[Array, Array], Array]]] = {
    "gradient_tracking": tracking,
    "qg_dsgdm": quasi_global,
    "decentlam": large_batch,
    "al_dsgd": lambda rates: lambda m, x: led(x, m, rates, 0.1, 0.1),
}


def made(
    method: str,
    topology: str = "complete",
    order: str = "atc",
    kind: Callable[[Sequence[Tensor]], torch.optim.Optimizer] = lambda params: torch.optim.SGD(
        params, lr=0.1
    ),
    dtype: torch.dtype = torch.float32,
    **how: object,
) -> None:
    p = torch.nn.Parameter(torch.ones(WORKERS, 3, dtype=dtype))
    decentralize(kind([p]), topology, order=order, averaging=method, transport=Memory(WORKERS), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "topology", "told"),
    [
        ("d2", "ring", "multiplies a difference between workers by 1.000.*\n.*\n.*'lazy\\(ring\\)'"),
        ("d2", "one_peer_exponential", "whose rounds change"),
        ("d2", "every(2, lazy(ring))", "whose rounds change"),
        ("d2", "then(complete, 5, lazy(ring))", "whose rounds change"),
        ("d2", "above(0.1, lazy(ring))", "whose rounds change"),
        ("decentlam", "aer", "whose rounds change"),
        ("decentlam", "every(2, ring)", "whose rounds change"),
        ("decentlam", "rounds(3, one_peer_exponential)", "hear whom they do not tell"),
    ],
)
def test_topologies_that_do_not_fit(method: str, topology: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        made(method, topology)


def adam(params: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(params, lr=0.1)


def heavy_ball(params: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.5)


@pytest.mark.parametrize("method", ["qg_dsgdm", "decentlam", "dc_s3gd"])
def test_optimizers_that_do_not_fit(method: str) -> None:
    order = "awc" if method == "dc_s3gd" else "atc"
    made(method, order=order)
    with pytest.raises(SettingsError, match=f"'{method}' was given with optimizer Adam"):
        made(method, order=order, kind=adam)
    if method == "dc_s3gd":
        made(method, order=order, kind=heavy_ball)
    else:
        with pytest.raises(SettingsError, match=f"two multiply the step.\n.*'{method}\\(0.5\\)'"):
            made(method, order=order, kind=heavy_ball)


@pytest.mark.parametrize("method", ["gradient_tracking", "d2", "qg_dsgdm", "decentlam", "al_dsgd", "dc_s3gd"])
def test_orders_delays_and_kinds_of_numbers_that_do_not_fit(method: str) -> None:
    order, least = ("awc", 1) if method == "dc_s3gd" else ("atc", 0)
    made(method, order=order, delay=least)
    with pytest.raises(SettingsError, match=f"expected delay={least}|Expected delay={least}"):
        made(
            method,
            "every(4, complete)" if method not in ("d2", "decentlam") else "complete",
            order,
            delay=least + 1,
        )
    for other in {"awc", "atc"} - {order}:
        with pytest.raises(SettingsError, match=f"order={other!r}"):
            made(method, order=other)
    with pytest.raises(SettingsError, match="(?i)complex"):
        made(method, order=order, dtype=torch.complex64)


@pytest.mark.parametrize(
    "method", ["qg_dsgdm(1)", "decentlam(-0.1)", "dc_s3gd(-1)", "al_dsgd(-1)", "al_dsgd(0.1, -1)"]
)
def test_numbers_out_of_range(method: str) -> None:
    with pytest.raises(SettingsError, match="(?i)given|0 or more"):
        build_method(method)


@pytest.mark.parametrize("method", ["gradient_tracking", "d2", "qg_dsgdm", "decentlam", "al_dsgd", "dc_s3gd"])
def test_half_precision_parameters_may_be_corrected(method: str) -> None:
    order = "awc" if method == "dc_s3gd" else "atc"
    p = torch.nn.Parameter(torch.ones(4, 33, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([p], lr=0.125)
    decentralize(optimizer, "complete", order=order, averaging=method, transport=Memory(4))
    gossip(optimizer).loss = torch.arange(4)
    target = torch.arange(4).view(4, 1).to(torch.bfloat16)
    for _ in range(60):
        p.grad = p.detach() - target
        optimizer.step()
    torch.testing.assert_close(p.detach().float().mean(0), torch.full((33,), 1.5), rtol=0, atol=0.05)
