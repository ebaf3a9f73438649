"""Means over pairs of hosts: the weights, when they are exact, and which of them travel by shards."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hf_decentral.rounds import Round
from hf_decentral.topology import Topology, build, every, spectrum, then, without
from hf_decentral.topology.shards import by_shards, sharded
from hf_decentral.topology.spectrum import radius
from hf_decentral.topology.traffic import sent


def hosts_of(sizes: list[int]) -> list[int]:
    return [host for host, size in enumerate(sizes) for _ in range(size)]


def product(topology: Topology) -> Tensor:
    found = torch.eye(topology.workers, dtype=torch.float64)
    for round in topology.rounds():
        found = round.matrix() @ found
    return found


@pytest.mark.parametrize("each", [1, 2, 3, 4])
@pytest.mark.parametrize("hosts", [2, 3, 4, 5, 6, 7, 8, 12])
def test_weights_are_those_of_the_hosts_times_the_mean_inside(hosts: int, each: int) -> None:
    topology = build("hierarchical", hosts * each, hosts_of([each] * hosts))
    among = build("base_graph", hosts)
    inside = torch.full((each, each), 1 / each, dtype=torch.float64)
    assert topology.period == among.period
    for round, other in zip(topology.rounds(), among.rounds(), strict=True):
        torch.testing.assert_close(round.matrix(), torch.kron(other.matrix(), inside), rtol=0, atol=1e-15)
    exact = torch.full_like(product(topology), 1 / (hosts * each))
    torch.testing.assert_close(product(topology), exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("each", [1, 2, 3, 4])
@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_hosts_in_powers_of_two_pair_by_distance_and_are_exact_soonest(hosts: int, each: int) -> None:
    topology = build("hierarchical", hosts * each, hosts_of([each] * hosts))
    assert spectrum(topology).exact == topology.period == hosts.bit_length() - 1
    for bit, round in enumerate(topology.rounds()):
        pairs = [(host, host ^ 1 << bit) for host in range(hosts) if not host & 1 << bit]
        unions = [tuple(h * each + k for h in pair for k in range(each)) for pair in pairs]
        assert sorted(round.groups or ()) == sorted(unions)


def test_one_worker_a_host_is_the_base_graph_and_one_host_its_mean() -> None:
    assert build("hierarchical", 6).rounds() == build("base_graph", 6).rounds()
    assert build("hierarchical", 5, [3] * 5).rounds() == build("complete", 5).rounds()
    assert build("hierarchical", 4, [1, 0, 1, 0]).rounds()[0].groups == ((0, 1, 2, 3),)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_uneven_hosts_keep_the_mean_and_approach_it(sizes: list[int], random) -> None:  # type: ignore[no-untyped-def]
    hosts = hosts_of(sizes)
    random.shuffle(hosts)
    topology = build("hierarchical", len(hosts), hosts)
    ones = torch.ones(len(hosts), dtype=torch.float64)
    for round in topology.rounds():
        torch.testing.assert_close(round.matrix().sum(0), ones, rtol=0, atol=1e-12)
        torch.testing.assert_close(round.matrix().sum(1), ones, rtol=0, atol=1e-12)
        for worker, row in enumerate(round.rows):
            assert len({hosts[sender] for sender, _ in row} | {hosts[worker]}) <= 2
    assert radius(product(topology) - 1 / len(hosts)) < 0.95


def test_two_uneven_hosts_are_exact() -> None:
    assert spectrum(build("hierarchical", 7, hosts_of([4, 3]))).exact == 1


# --- shards -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [2, 3, 4])
@pytest.mark.parametrize("hosts", [2, 3, 4, 5, 6])
def test_whoever_hears_another_host_does_so_by_shards(hosts: int, each: int) -> None:
    where = hosts_of([each] * hosts)
    topology = build("hierarchical", hosts * each, where)
    table = sharded(topology)
    for round in topology.rounds():
        shards = table[round.key]
        for worker, row in enumerate(round.rows):
            heard = [sender for sender, _ in row if where[sender] != where[worker]]
            if heard:
                assert list(shards[worker].across) == heard
                assert shards[worker].weight == pytest.approx(sum(w for j, w in row if j in heard))
            elif worker in shards:
                assert shards[worker].across == ()
            else:
                assert any(worker in group for group in round.groups or ())
        assert max(sent(round, shards=shards)) <= 2 - 1 / each
        for host in range(hosts):
            mine = [worker for worker in shards if where[worker] == host and shards[worker].across]
            assert sum(1 / len(shards[worker].inside) for worker in mine) in (0, pytest.approx(1.0))


def test_what_has_no_equal_part_in_two_whole_hosts_travels_as_it_is() -> None:
    hosts = (0, 0, 1, 1)
    union = Round.average([(0, 1, 2, 3)], 4)
    assert set(by_shards(union, hosts)) == {0, 1, 2, 3}
    assert not by_shards(Round.average([(0, 1), (2, 3)], 4), hosts), "groups inside a host have a collective"
    assert not by_shards(Round.average([(0, 1, 2)], 4), hosts)
    assert not by_shards(Round.average([(0, 2), (1, 3)], 4), hosts)
    assert not by_shards(union, (0, 0, 0, 1))
    assert not by_shards(Round.average([range(6)], 6), (0, 0, 1, 1, 2, 2)), "three hosts"
    one_way = Round((*[((0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25))] * 2, ((2, 1.0),), ((3, 1.0),)))
    assert not by_shards(one_way, hosts)


def test_only_where_the_topology_says_its_hosts() -> None:
    hosts = [0, 0, 1, 1]
    inner, complete = build("hierarchical", 4, hosts), build("complete", 4, hosts)
    assert not sharded(complete)
    assert (
        sharded(inner).keys() == sharded(every(3, inner)).keys() == sharded(then(complete, 5, inner)).keys()
    )
    assert not sharded(without({1}, inner))
    assert then(complete, 5, inner).hosts == every(3, inner).hosts == tuple(hosts)
