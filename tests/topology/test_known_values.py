"""Numbers that are known from the papers or by hand."""

from __future__ import annotations

import pytest
import torch

from hf_decentral.errors import SettingsError, TopologyError
from hf_decentral.topology import Round, build, every, spectrum, then, without
from hf_decentral.topology.spectrum import largest_stable_step
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


def test_aer_follows_a_base_2_graph_where_the_hosts_are_no_power_of_two() -> None:
    topology = build("aer", 12, [i // 4 for i in range(12)])
    assert topology.period == 3
    product = torch.eye(12, dtype=torch.float64)
    for round in topology.rounds():
        product = round.matrix() @ product
    assert torch.allclose(product, torch.full_like(product, 1 / 12), atol=1e-12, rtol=0)


def test_the_order_in_which_hosts_are_numbered_does_not_matter() -> None:
    assert build("aer", 4, [9, 9, 2, 2]).rounds() == build("aer", 4, [0, 0, 1, 1]).rounds()


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


def test_every_puts_idle_rounds_between() -> None:
    topology = every(3, build("one_peer_exponential", 4))
    assert [topology(step).idle for step in range(6)] == [True, True, False] * 2
    assert topology.period == 6
    assert topology(5) == build("one_peer_exponential", 4)(1)


def test_then_begins_the_second_from_its_beginning() -> None:
    first, second = build("complete", 4), build("aer", 4)
    topology = then(first, 5, second)
    assert (topology(4), topology(5), topology(6)) == (first(4), second(0), second(1))
    assert topology.period is None


def test_without_keeps_the_mean_of_the_living() -> None:
    topology = without({2}, build("ring", 6))
    m = topology(0).matrix()
    assert m[2, 2] == 1
    assert torch.allclose(m.sum(0), torch.ones(6, dtype=torch.float64))


def test_what_cannot_be_meant() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'ring'"):
        build("rinng", 4)
    with pytest.raises(TopologyError, match="0 workers"):
        build("ring", 0)
    with pytest.raises(TopologyError, match="one host number for each of the 4 workers"):
        build("aer", 4, [0, 1])
    with pytest.raises(SettingsError, match="steps=0 was given"):
        every(0, build("ring", 4))
    with pytest.raises(SettingsError, match="as in the first"):
        then(build("ring", 4), 1, build("ring", 5))


def test_a_round_knows_its_groups() -> None:
    assert Round.average([(0, 2)], 3).groups == ((0, 2),)
    assert build("ring", 5)(0).groups is None
