"""The alternating exponential ring, beside the walk of the paper and on hosts that the paper leaves out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hf_decentral.topology import Topology, build, spectrum
from hf_decentral.topology.spectrum import radius
from hf_decentral.topology.traffic import sent


def hosts_of(sizes: list[int]) -> list[int]:
    return [host for host, size in enumerate(sizes) for _ in range(size)]


def product(topology: Topology) -> Tensor:
    found = torch.eye(topology.workers, dtype=torch.float64)
    for round in topology.rounds():
        found = round.matrix() @ found
    return found


def walk(hosts: int, each: int) -> list[set[tuple[int, ...]]]:
    """The groups of each step as the published code makes them, for ``2^r`` hosts of ``each`` workers."""
    steps, number = [], 0
    for bit in range(hosts.bit_length() - 1):
        first: list[list[int]] = []
        second: list[list[int]] = []
        for j in range(hosts):
            if j & 1 << bit:
                continue  # the partner of a host before it
            pair = [list(range(h * each, (h + 1) * each)) for h in (j, j ^ 1 << bit)]
            alone, union = pair, [pair[0] + pair[1]]
            first += alone if number % 2 == 0 else union
            second += union if number % 2 == 0 else alone
            number += 1
        steps += [first, second]
    return [{tuple(group) for group in step if len(group) > 1} for step in steps]


@pytest.mark.parametrize("each", [1, 2, 4])
@pytest.mark.parametrize("hosts", [2, 4, 8, 16])
def test_it_walks_as_in_the_paper(hosts: int, each: int) -> None:
    topology = build("aer", hosts * each, hosts_of([each] * hosts))
    assert [set(round.groups or ()) for round in topology.rounds()] == walk(hosts, each)
    assert topology.period == 2 * (hosts.bit_length() - 1)
    assert spectrum(topology).exact == topology.period


@pytest.mark.parametrize("hosts", [4, 8])
def test_half_of_the_pairs_use_the_network_in_every_round(hosts: int) -> None:
    for round in build("aer", hosts * 4, hosts_of([4] * hosts)).rounds():
        sizes = sorted(map(len, round.groups or ()))
        assert sizes == [4] * (hosts // 2) + [8] * (hosts // 4)


@pytest.mark.parametrize("each", [1, 2, 3])
@pytest.mark.parametrize("hosts", [3, 5, 6, 7, 11, 12])
def test_other_numbers_of_equal_hosts_are_exact_after_a_period(hosts: int, each: int) -> None:
    topology = build("aer", hosts * each, hosts_of([each] * hosts))
    assert topology.period == build("base_graph", hosts).period
    assert torch.allclose(
        product(topology), torch.tensor(1 / (hosts * each), dtype=torch.float64), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("hosts", [3, 5, 6, 7])
def test_no_worker_hears_more_than_one_where_a_round_is_no_mean(hosts: int) -> None:
    for round in build("aer", hosts * 4, hosts_of([4] * hosts)).rounds():
        if round.groups is None:
            assert max(len(round.senders(worker)) for worker in range(hosts * 4)) == 1
        assert max(sent(round)) <= 1.75


def test_one_host_takes_its_mean_in_every_round() -> None:
    topology = build("aer", 5, [3] * 5)
    assert topology.rounds() == build("complete", 5).rounds()


def test_hosts_may_come_in_any_order_under_any_number() -> None:
    assert build("aer", 4, [9, 9, 2, 2]).rounds() == build("aer", 4, [0, 0, 1, 1]).rounds()
    mixed = build("aer", 4, [1, 0, 1, 0])
    assert [round.groups for round in mixed.rounds()] == [((0, 2), (1, 3)), ((0, 1, 2, 3),)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_uneven_hosts_average_in_groups_and_mix(sizes: list[int], random) -> None:  # type: ignore[no-untyped-def]
    hosts = hosts_of(sizes)
    random.shuffle(hosts)
    topology = build("aer", len(hosts), hosts)
    for round in topology.rounds():
        matrix = round.matrix()
        assert torch.allclose(matrix.sum(0), torch.ones(len(hosts), dtype=torch.float64), atol=1e-12, rtol=0)
        for group in round.groups or ():
            assert len({hosts[worker] for worker in group}) <= 2
        assert len(set(sizes)) == 1 or round.groups is not None
    assert radius(product(topology) - 1 / len(hosts)) < 0.9


def test_two_uneven_hosts_are_exact() -> None:
    assert spectrum(build("aer", 7, hosts_of([4, 3]))).exact == 2
