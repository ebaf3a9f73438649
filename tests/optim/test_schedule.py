"""Rounds that take place only when the consensus distance asks for them."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import Tensor

from hf_decentral import gossip
from hf_decentral.optim import decentralize
from hf_decentral.optim.schedule import Schedule
from hf_decentral.topology import above, build, every
from hf_decentral.transport import Memory
from tests.optim.cases import parameters, train_one, train_stacked
from tests.processes import run

WORKERS = 4


def asked(least: float, workers: int) -> Schedule:
    return Schedule(above(least, build("one_peer_exponential", workers)), Memory(workers))


def exact(flats: list[Tensor]) -> float:
    return math.sqrt(sum(float((x - x.mean(0)).abs().square().sum(1).mean()) for x in flats))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_the_sketch_tells_the_consensus_distance(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    common = [torch.randn(p, generator=generator) for p in (70_000, 5_001, 16, 300)]
    flats = [(c + 0.1 * torch.randn(6, len(c), generator=generator)).to(dtype) for c in common]
    schedule = asked(1.0, 6)
    schedule.look(flats, 0)
    schedule.read()
    # Its own standard error is 9 % of the square.
    assert schedule.distance == pytest.approx(exact(flats), rel=0.15)


def test_the_sketch_is_right_on_average() -> None:
    generator = torch.Generator().manual_seed(1)
    schedule, ratios = asked(1.0, 3), []
    for step in range(200):
        flats = [torch.randn(3, 2_000, generator=generator, dtype=torch.float64)]
        schedule.look(flats, step)
        schedule.read()
        ratios.append((schedule.distance / exact(flats)) ** 2)
    assert sum(ratios) / 200 == pytest.approx(1.0, abs=4 * 0.09 / math.sqrt(200))


def test_equal_workers_are_at_no_distance_and_one_without_a_number_asks_for_a_round() -> None:
    schedule = asked(1e-3, 4)
    schedule.look([torch.randn(1, 10_000).mul(100).expand(4, -1).contiguous()], 0)
    assert schedule(1).idle
    assert schedule.distance < 1e-3
    flat = torch.zeros(4, 100)
    flat[2, 7] = math.nan
    schedule.look([flat], 1)
    assert not schedule(2).idle


def test_rounds_come_in_their_order_and_none_is_left_out() -> None:
    inner = build("one_peer_exponential", 8)
    schedule = Schedule(above(1.0, inner), Memory(8))
    begun = []
    for step in range(12):
        schedule.look([torch.arange(8.0).unsqueeze(1) * (1 if step % 3 else 0)], step)
        if not schedule(step + 1).idle:
            begun.append(schedule(step + 1))
    assert begun == [inner(k) for k in range(8)]


def noisy(least: float, steps: int, order: str = "awc") -> tuple[float, float, Tensor]:
    """Largest distance of the second half, bytes sent, and the mean over the workers at the end."""
    x = torch.nn.Parameter(torch.zeros(WORKERS, 4_000, dtype=torch.float64))
    topology = above(least, build("one_peer_exponential", WORKERS))
    model = torch.nn.Module()
    optimizer = torch.optim.SGD([x], lr=1.0)
    decentralize(optimizer, topology, order=order, model=model, transport=Memory(WORKERS))
    generator, largest = torch.Generator().manual_seed(0), 0.0
    for step in range(steps):
        x.grad = 0.01 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
        optimizer.step()
        if step >= steps // 2:
            largest = max(largest, gossip(optimizer).distance())
    sent = gossip(optimizer).sent_bytes
    gossip(optimizer).flush()
    return largest, sent, x.detach().mean(0)


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_the_distance_stays_where_it_was_told_to_and_fewer_bytes_do_it(order: str) -> None:
    always, all_bytes, mean = noisy(0.0, 60, order)
    largest, some_bytes, same = noisy(2.0, 60, order)
    drift = 0.01 * math.sqrt(4_000)  # of one step
    assert always < 2.0 < largest < 2.0 + 3 * drift
    assert some_bytes < all_bytes / 3
    # Whoever talks or not, the mean over the workers takes the mean of their steps.
    torch.testing.assert_close(same, mean, rtol=0, atol=1e-12)


def test_a_distance_that_is_never_reached_leaves_the_workers_alone() -> None:
    assert noisy(1e9, 10)[1] == 11 * 257 * 8 * 1.5, "only the sketches travel"


def one_worker(worker: int) -> list[Tensor]:
    params = [torch.nn.Parameter(p) for p in parameters()]
    optimizer = decentralize(torch.optim.Adam(params, lr=0.05), "above(0.3, one_peer_exponential)")
    train_one(params, optimizer, 20, worker)
    return [p.detach().clone() for p in params]


def test_processes_equal_the_simulator_to_the_last_bit() -> None:
    params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]
    optimizer = torch.optim.Adam(params, lr=0.05)
    decentralize(optimizer, "above(0.3, one_peer_exponential)", transport=Memory(WORKERS))
    train_stacked(params, optimizer, 20, WORKERS)
    assert 0 < optimizer.state_dict()["hf_decentral"]["schedule"]["rounds"] < 19
    for w, found in enumerate(run(WORKERS, one_worker)):
        for p, q in zip(params, found, strict=True):
            assert torch.equal(p.detach()[w], q)


def interrupted(stop: int | None, combined: bool, order: str) -> list[Tensor]:
    """20 steps; the state goes through a file after some of them."""
    model = torch.nn.Module()
    params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]

    def start() -> torch.optim.Optimizer:
        for p in params:
            p.data = p.data.clone()
        return decentralize(
            torch.optim.Adam(params, lr=0.05),
            "above(0.3, one_peer_exponential)",
            model=model,
            order=order,
            transport=Memory(WORKERS),
        )

    optimizer = start()
    generator = torch.Generator().manual_seed(0)
    for step in range(20):
        if step == stop:
            if combined:
                gossip(optimizer).flush()
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            optimizer = start()
            optimizer.load_state_dict(torch.load(file))
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    gossip(optimizer).flush()
    return [p.detach().clone() for p in params]


@pytest.mark.parametrize("order", ["awc", "atc", "cta"])
def test_a_run_goes_on_as_if_it_had_not_been_interrupted(order: str) -> None:
    whole = interrupted(None, False, order)
    for stop in range(4, 12):
        for combined in (False, True):
            for p, q in zip(whole, interrupted(stop, combined, order), strict=True):
                assert torch.equal(p, q), (stop, combined)


def test_looking_at_the_next_round_decides_nothing() -> None:
    inner = build("one_peer_exponential", 4)
    schedule = Schedule(above(1.0, inner), Memory(4))
    schedule.look([torch.arange(4.0).unsqueeze(1).contiguous()], 0)
    assert [schedule.peek(1) for _ in range(3)] == [inner(0)] * 3
    assert schedule(1) == inner(0) == schedule.peek(1)
    assert schedule.peek(2) == inner(1)


def test_a_round_that_is_idle_by_itself_is_begun_again_too() -> None:
    inner = every(2, build("one_peer_exponential", 4))
    flat = [torch.arange(4.0).unsqueeze(1).contiguous()]
    for stop in range(1, 6):
        schedule = Schedule(above(1.0, inner), Memory(4))
        begun = []
        for step in range(6):
            schedule.look(flat, step)
            begun.append(schedule(step + 1))
            if step + 1 == stop:
                state = schedule.state(stop, combined=False)
                schedule = Schedule(above(1.0, inner), Memory(4))
                schedule.load(state)
                assert schedule(stop) == begun[-1]
        assert begun == [inner(k) for k in range(6)]
