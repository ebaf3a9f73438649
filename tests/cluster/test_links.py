"""What rounds cost on links, against counting by hand: P = 1 MB, 8 Mbit/s (1 s a message), latency 10 ms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_decentral import topology
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.links import Links
from hf_decentral.rounds import Round
from hf_decentral.topology.shards import by_shards

P, L = 1e6, 0.01
NETWORK = Cluster(link="8mbit", latency=L)
# Inside a host a message takes 0.1 s and 1 ms.
HOSTS = Cluster(link="8mbit", latency=L, hosts=(0, 0, 1, 1), inside="80mbit", inside_latency=0.001)


def arrivals(cluster: Cluster, round: Round, ready: list[float] | None = None, **how) -> list[float]:
    begun = np.array(ready if ready is not None else [0.0] * round.workers)
    return Links(cluster, round.workers).costs(round, **how).arrivals(begun, P).tolist()


def test_a_pair_takes_one_message_and_is_ready_with_the_later_one():
    round = Round.average([(0, 1)], 3)
    assert arrivals(NETWORK, round) == [1 + L, 1 + L, -np.inf]
    assert arrivals(NETWORK, round, [3.0, 5.0, 9.0]) == [6 + L, 6 + L, -np.inf]


def test_two_neighbours_share_the_link():
    assert arrivals(NETWORK, topology.build("ring", 5)(0)) == [2 + L] * 5


def test_a_mean_of_many_is_one_ring_all_reduce():
    expected = 2 * 3 * (L + 0.25)
    assert arrivals(NETWORK, topology.build("complete", 4)(0)) == pytest.approx([expected] * 4)
    ready = [0.0, 7.0, 0.0, 1.0]
    assert arrivals(NETWORK, topology.build("complete", 4)(0), ready) == pytest.approx([7 + expected] * 4)


def test_codes_travel_to_everybody():
    assert arrivals(NETWORK, topology.build("complete", 4)(0), coded=True) == [3 + L] * 4


def test_the_middle_of_a_star_is_what_all_wait_for():
    weights = torch.eye(5, dtype=torch.float64)
    for leaf in range(1, 5):
        weights[0, leaf] = weights[leaf, 0] = 0.2
        weights[leaf, leaf] = 0.8
    weights[0, 0] = 0.2
    assert arrivals(NETWORK, Round.from_matrix(weights)) == [4 + L] * 5


def test_a_directed_round_lets_nobody_wait_for_its_hearers():
    round = Round.from_matrix(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    assert arrivals(NETWORK, round, [0.0, 4.0]) == [-np.inf, 5 + L]
    assert arrivals(NETWORK, round, [4.0, 0.0]) == [-np.inf, 5 + L]


def test_workers_of_one_host_share_its_link():
    across = Round.average([(0, 2), (1, 3)], 4)
    assert arrivals(HOSTS, across) == [2 + L] * 4
    inside = Round.average([(0, 1), (2, 3)], 4)
    assert arrivals(HOSTS, inside) == pytest.approx([0.101] * 4)
    # Each worker has one neighbour on its own host and one on the other.
    assert arrivals(HOSTS, topology.build("ring", 4, (0, 0, 1, 1))(0)) == [2 + L] * 4


def test_a_ring_over_hosts_passes_each_link_once_and_is_as_fast_as_its_slowest_part():
    assert arrivals(HOSTS, topology.build("complete", 4)(0)) == pytest.approx([6 * (L + 0.25)] * 4)
    cluster = Cluster(link="8mbit", latency=L, hosts=(0, 0, 0, 1, 1, 1), inside="80mbit")
    two = Round.average([(0, 1, 3), (2, 4, 5)], 6)
    assert arrivals(cluster, two) == pytest.approx([4 * (L + 2 / 3)] * 6)
    alone = Round.average([(0, 1, 2)], 6)
    assert arrivals(cluster, alone)[:3] == pytest.approx([4 * 0.1 / 3] * 3)


def test_shards_leave_a_host_once():
    hosts = (0, 0, 1, 1)
    round = topology.build("hierarchical", 4, hosts)(0)
    shards = by_shards(round, hosts)
    assert sorted(shards) == [0, 1, 2, 3]
    expected = 2 * (0.001 + 0.05) + L + 1
    assert arrivals(HOSTS, round, shards=shards) == pytest.approx([expected] * 4)
    assert Links(HOSTS, 4).costs(round, shards=shards).copies == 1.5


@pytest.mark.parametrize(
    ("name", "workers"),
    [(name, n) for name, entry in topology.TABLE.items() for n in (1, 2, 5, 8) if entry.serves(n)],
)
def test_whoever_hears_somebody_hears_in_finite_time(name: str, workers: int):
    for round in topology.build(name, workers).rounds():
        for cluster in (NETWORK, Cluster()):
            found = arrivals(cluster, round)
            assert [at > -np.inf for at in found] == [bool(round.senders(i)) for i in range(workers)]
            assert all(0 <= at < np.inf for at in found if at > -np.inf)


def test_a_pair_outside_of_rounds():
    links = Links(HOSTS, 4)
    assert links.pair_seconds(0, 1, P) == pytest.approx(0.101)
    assert links.pair_seconds(1, 2, P) == pytest.approx(1 + L)
