"""Numbers that are known from the papers or by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.errors import SettingsError, TopologyError
from hf_decentral.topology import build, spectrum
from hf_decentral.topology.spectrum import largest_stable_step, radius
from hf_decentral.topology.traffic import sent

FOUR_HOSTS = [i // 4 for i in range(16)]


def test_aer_on_four_hosts_pairs_them_as_in_the_paper() -> None:
    pairs = [round.groups for round in build("aer", 4).rounds()]
    assert pairs == [((2, 3),), ((0, 1),), ((1, 3),), ((0, 2),)]


def test_aer_with_several_workers_a_host_uses_the_network_for_half_of_the_pairs() -> None:
    topology = build("aer", 16, FOUR_HOSTS)
    sizes = [sorted(map(len, round.groups or ())) for round in topology.rounds()]
    assert sizes == [[4, 4, 8]] * 4
    assert spectrum(topology).exact == topology.period == 4
    assert sent(topology(0)) == (1.5,) * 8 + (1.75,) * 8


@pytest.mark.parametrize(("workers", "period"), [(3, 3), (5, 5), (6, 4), (7, 5), (12, 5), (24, 6), (25, 9)])
def test_base_2_is_as_short_as_the_paper_says(workers: int, period: int) -> None:
    assert build("base_graph", workers).period == period


def test_one_peer_exponential_is_exact_only_for_powers_of_two() -> None:
    assert spectrum(build("one_peer_exponential", 8)).exact == 3
    assert spectrum(build("one_peer_exponential", 6)).exact is None
    assert build("one_peer_exponential", 8)(1).rows[1] == ((1, 0.5), (7, 0.5))


@pytest.mark.parametrize(
    ("name", "workers", "hosts", "limit"),
    [
        ("ring", 8, None, 2 / 3),
        ("complete", 8, None, 1.0),
        ("one_peer_exponential", 8, None, 1.1487),
        ("aer", 16, FOUR_HOSTS, 1.0),
        ("base_graph", 5, None, 1.2298),
    ],
)
def test_the_largest_stable_step_while_combining(
    name: str, workers: int, hosts: list[int] | None, limit: float
) -> None:
    assert spectrum(build(name, workers, hosts)).largest_stable_step == pytest.approx(limit, abs=1e-3)


def test_the_limit_of_a_static_graph_is_one_plus_its_smallest_eigenvalue() -> None:
    star = torch.eye(5, dtype=torch.float64) * 0.75
    star[0, :] = star[:, 0] = 0.25
    star[0, 0] = 0.0
    assert torch.allclose(star.sum(1), torch.ones(5, dtype=torch.float64))
    smallest = float(torch.linalg.eigvalsh(star)[0])
    assert largest_stable_step([star]) == pytest.approx(1 + smallest, abs=1e-6)


def test_the_second_eigenvalue_of_a_ring() -> None:
    numbers = spectrum(build("ring", 8))
    assert numbers.second_eigenvalue == pytest.approx((1 + 2**0.5) / 3)


def test_what_cannot_be_meant() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'ring'"):
        build("rinng", 4)
    with pytest.raises(TopologyError, match="0 workers"):
        build("ring", 0)
    with pytest.raises(TopologyError, match="one host number for each of the 4 workers"):
        build("aer", 4, [0, 1])
    with pytest.raises(TopologyError, match="2.5 workers"):
        build("ring", 2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", range(1, 65))
def test_base_2_has_one_peer_a_round_and_a_short_period(workers: int) -> None:
    topology = build("base_graph", workers)
    assert topology.period is not None
    assert topology.period <= max(1, 2 * math.log2(workers) + 2)
    for round in topology.rounds():
        assert max(len(round.senders(worker)) for worker in range(workers)) <= 1
        assert all(round.senders(worker) == round.receivers(worker) for worker in range(workers))


@pytest.mark.parametrize(("workers", "left"), [(3, 0.25), (6, 0.216506), (12, 0.209129)])
def test_what_one_peer_exponential_leaves_of_differences(workers: int, left: float) -> None:
    numbers = spectrum(build("one_peer_exponential", workers))
    assert numbers.contraction == pytest.approx(left, abs=1e-6)


@pytest.mark.parametrize(("workers", "left"), [(5, 0.5393447), (8, 0.8047379), (16, 0.9492530)])
def test_what_a_ring_leaves_of_differences(workers: int, left: float) -> None:
    numbers = spectrum(build("ring", workers))
    assert numbers.second_eigenvalue == pytest.approx(left, abs=1e-6)
    assert numbers.contraction == pytest.approx(left, abs=1e-6)
    assert numbers.exact is None


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_small_ring_is_complete(workers: int) -> None:
    assert build("ring", workers).rounds() == build("complete", workers).rounds()


@given(st.integers(2, 12), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_the_radius_is_that_of_the_eigenvalues(size: int, seed: int) -> None:
    matrix = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert radius(matrix) == pytest.approx(float(torch.linalg.eigvals(matrix).abs().max()), rel=1e-7)


def test_the_radius_where_nothing_is_left() -> None:
    shift = torch.diag(torch.ones(3, dtype=torch.float64), 1)
    assert radius(shift) == 0.0
    assert radius(torch.eye(3, dtype=torch.float64) + shift[:3, :3]) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("name", ["ring", "one_peer_exponential", "base_graph", "aer"])
def test_training_grows_just_above_the_largest_stable_step(name: str) -> None:
    """x <- M x - a x, run: what adapt-while-combine does on one quadratic that all workers share."""
    topology = build(name, 8)
    limit = spectrum(topology).largest_stable_step
    period = [round.matrix() for round in topology.rounds()]
    for a, stable in ((0.98 * limit, True), (1.02 * limit, False)):
        x = torch.eye(8, dtype=torch.float64)  # 8 starts at once, [workers, starts]
        for _ in range(1000):
            for m in period:
                x = m @ x - a * x
        assert (float(x.abs().max()) < 1e3) == stable
