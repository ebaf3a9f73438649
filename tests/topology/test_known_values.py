"""Numbers that are known from the papers or by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.errors import SettingsError, TopologyError
from hf_decentral.topology import build, spectrum
from hf_decentral.topology.spectrum import largest_stable_step, left_of_a_round, radius
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


# Rounds of a period for 2 to 40 workers and k = 1 to 4: as many as in the code that the authors published.
LENGTHS = {
    1: "1 3 2 5 4 5 3 7 6 7 5 7 6 7 4 9 8 9 7 9 8 9 6 9 8 9 7 9 8 9 5 11 10 11 9 11 10 11 8",
    2: "1 1 2 3 2 4 3 2 4 5 3 5 5 4 4 5 3 6 5 5 6 6 4 6 6 3 6 7 5 7 5 6 6 7 4 7 7 6 6",
    3: "1 1 1 3 2 3 2 2 4 4 2 4 4 4 2 5 3 5 4 4 5 5 3 5 5 3 4 5 5 5 3 5 6 6 3 6 6 5 5",
    4: "1 1 1 1 2 3 2 2 2 4 2 4 4 2 2 4 3 4 2 4 4 4 3 2 5 3 4 5 3 5 3 5 5 4 3 5 5 5 3",
}


@pytest.mark.parametrize("k", LENGTHS)
def test_base_graphs_are_as_short_as_published(k: int) -> None:
    for workers, length in enumerate(map(int, LENGTHS[k].split()), 2):
        topology = build(f"base_graph({k})", workers)
        assert topology.period == length <= 2 * math.log(workers, k + 1) + 2 + 1e-9
        product = torch.eye(workers, dtype=torch.float64)
        for round in topology.rounds():
            matrix = round.matrix()
            assert torch.equal(matrix, matrix.T) and bool((matrix >= 0).all())
            assert max(len(round.senders(worker)) for worker in range(workers)) <= k
            product = matrix @ product
        torch.testing.assert_close(product, torch.full_like(product, 1 / workers), rtol=0, atol=1e-12)


def test_a_base_graph_of_many_peers_is_complete() -> None:
    assert build("base_graph(8)", 9).rounds() == build("complete", 9).rounds()
    assert build("base_graph(1000000000)", 9).rounds() == build("complete", 9).rounds()
    assert build("base_graph(7)", 9).period == 2


@pytest.mark.parametrize(
    ("name", "workers", "left", "smallest"),
    [
        ("torus", 16, 0.6, -0.6),
        ("torus", 15, 0.723607, None),
        ("star", 8, 0.875, 0.0),
        ("hypercube", 8, 0.5, -0.5),
        ("static_exponential", 4, 1 / 3, None),
        ("static_exponential", 8, 0.5, None),
        ("static_exponential", 16, 0.6, None),
        ("static_exponential", 32, 2 / 3, None),
        ("ring", 8, 0.8047379, -1 / 3),
    ],
)
def test_what_a_static_round_leaves_of_differences(
    name: str, workers: int, left: float, smallest: float | None
) -> None:
    topology = build(name, workers)
    matrix = topology(0).matrix()
    apart = matrix - 1 / workers
    assert topology.period == 1
    assert float(torch.linalg.matrix_norm(apart, 2)) == pytest.approx(left, abs=1e-6)
    if smallest is not None:
        assert float(torch.linalg.eigvalsh(matrix)[0]) == pytest.approx(smallest, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "workers", "limit"),
    [
        ("torus", 16, 0.4),
        ("hypercube", 8, 0.5),
        ("static_exponential", 8, 0.8205),
        ("star", 8, 1.0),
        ("base_graph(2)", 7, 1.2743),
    ],
)
def test_the_largest_stable_step_of_graphs_with_many_neighbours(
    name: str, workers: int, limit: float
) -> None:
    assert spectrum(build(name, workers)).largest_stable_step == pytest.approx(limit, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "workers", "left"),
    [
        ("random_matching", 4, 1 / 3),
        ("random_matching", 6, 0.4),
        ("random_matching", 8, 0.428571),
        ("random_matching", 7, 0.5),
        ("random_ring", 8, 0.238095),
        ("random_ring", 16, 0.288889),
    ],
)
def test_what_a_redrawn_round_leaves_of_squared_differences(name: str, workers: int, left: float) -> None:
    assert left_of_a_round(build(name, workers)) == pytest.approx(left, abs=1e-6)


@pytest.mark.parametrize("sides", [(3, 3), (3, 4), (4, 4), (4, 6), (5, 5), (4, 7), (25, 40)])
def test_a_torus_is_as_near_to_a_square_as_it_can_be(sides: tuple[int, int]) -> None:
    a, b = sides
    matrix = build("torus", a * b)(0).matrix()
    rings = [
        build("ring", n)(0).matrix() if n > 3 else torch.full((3, 3), 1 / 3, dtype=torch.float64)
        for n in sides
    ]
    eyes = [torch.eye(n, dtype=torch.float64) for n in sides]
    # Both rings have a third for oneself, of which the torus has a fifth in all.
    expected = (3 * torch.kron(rings[0], eyes[1]) + 3 * torch.kron(eyes[0], rings[1]) - torch.eye(a * b)) / 5
    torch.testing.assert_close(matrix, expected, rtol=0, atol=1e-12)


def test_the_mean_of_all_graphs_of_equitopo_is_the_mean() -> None:
    for name in ("d_equistatic", "u_equistatic"):
        for workers in (2, 5, 9, 12):
            graphs = build(f"{name}(3, {workers - 1})", workers)
            assert [round.groups for round in graphs.rounds()] == [(tuple(range(workers)),)]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("workers", [4, 6, 12, 16, 25, 64, 128])
def test_equitopo_draws_few_graphs_that_mix(workers: int, seed: int) -> None:
    few = math.ceil(math.log(workers))
    directed = build(f"d_equistatic({seed})", workers)(0)
    matrix = directed.matrix()
    assert {len(directed.senders(worker)) for worker in range(workers)} == {few}
    assert matrix.diagonal().tolist() == [1 / workers] * workers
    mutual = build(f"u_equistatic({seed})", workers)(0).matrix()
    assert torch.equal(mutual, mutual.T)
    for found, bound in ((matrix, 0.8), (mutual, 0.65)):
        assert float(torch.linalg.matrix_norm(found - 1 / workers, 2)) < bound


def test_equitopo_with_one_graph_finds_a_connected_one() -> None:
    """Of 5 shifts of 6 workers only two lead to all of them."""
    for seed in range(8):
        assert spectrum(build(f"d_equistatic({seed}, 1)", 6)).contraction < 1 - 1e-6
    with pytest.raises(SettingsError, match="graphs=6 was given"):
        build("d_equistatic(0, 6)", 6)
