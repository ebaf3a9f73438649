"""Closed forms against counting by hand, and the event model against the closed forms.

The clusters here have links slow enough that an all-reduce goes round a ring, as the forms do.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hf_decentral import topology
from hf_decentral.cluster.costs import (
    Wire,
    aer_rounds,
    all_reduce_step,
    expected_slowest,
    gossip_step,
    hierarchical_exchange,
    reduce_scatter,
    ring_all_reduce,
    tree_all_reduce,
)
from hf_decentral.cluster.iteration import Iteration, Method, timing
from hf_decentral.cluster.laws import Cluster, law
from hf_decentral.cluster.links import Links
from hf_decentral.cluster.measured import Measured, Work
from hf_decentral.errors import SettingsError
from hf_decentral.topology import Topology
from hf_decentral.topology.shards import sharded

P = 8e6  # eight seconds a message at 8 Mbit/s
L, INSIDE_L = 1e-3, 1e-4
NETWORK, INSIDE = Wire(L, 8e6), Wire(INSIDE_L, 40e6)
EXACT = {"rel": 1e-9, "abs": 1e-12}


def cluster_of(per_host: int = 1, hosts: int = 2, **more) -> Cluster:
    where = tuple(host for host in range(hosts) for _ in range(per_host))
    known = {"link": "8mbit", "latency": L, "inside": "40mbit", "inside_latency": INSIDE_L, "hosts": where}
    return Cluster(**{**known, **more})


def step_of(cluster: Cluster, method: Method, work: Work | None = None) -> float:
    workers = len(cluster.hosts or ())
    return timing(Measured(workers, cluster, work or Work(P)), method).step_seconds


def rounds_of(cluster: Cluster, rounds: Topology) -> list[float]:
    """Seconds of each round on the links."""
    links, shards = Links(cluster, rounds.workers), sharded(rounds)
    costs = [links.costs(round, shards=shards.get(round.key)) for round in rounds.rounds()]
    return [max(0.0, each.arrivals(np.zeros(rounds.workers), P).max()) for each in costs]


def test_a_message_and_an_exchange():
    assert Wire(0.5, 8e6).message(1e6) == 1.5
    assert Wire(0.5, 8e6).message(1e6, pieces=4) == 3.0
    assert Wire(0.5, 8e6).both_ways(1e6, sharing=3) == 3.5
    assert Wire(0.5, 8e6, half_duplex=True).both_ways(1e6) == 2.5
    assert Wire(0.5, math.inf).message(1e9) == 0.5


def test_the_halves_of_a_ring():
    assert ring_all_reduce(4, P, NETWORK) == 2 * 3 * (L + 2.0)
    assert reduce_scatter(4, P, NETWORK) + reduce_scatter(4, P, NETWORK) == ring_all_reduce(4, P, NETWORK)
    assert ring_all_reduce(1, P, NETWORK) == 0.0
    # However many there are, each sends and hears less than two copies.
    assert ring_all_reduce(10_000, P, Wire(0.0, 8e6)) == pytest.approx(16.0, rel=1e-3)


def test_a_tree():
    assert tree_all_reduce(1, P, NETWORK) == 0.0
    assert tree_all_reduce(2, P, NETWORK) == pytest.approx(2 * (L + 8.0))
    assert tree_all_reduce(8, P, NETWORK) == pytest.approx(2 * 3 * (L + 8.0))
    # 2 ((d - 1) L + P / B + s L + (d - 1) P / (s B)) is least at s = sqrt((d - 1) P / (L B)), here 40.
    wire = Wire(0.01, 8e6)
    least = 2 * (math.sqrt(2 * 0.01) + math.sqrt(8.0)) ** 2
    found = [tree_all_reduce(8, P, wire, pieces) for pieces in range(1, 200)]
    assert min(found) == found[39] == pytest.approx(least)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_the_event_model_carries_a_mean_of_all_round_a_ring(workers: int):
    cluster = cluster_of(1, workers)
    groups = Links(cluster, workers).together().groups
    assert groups.seconds(P) == pytest.approx([ring_all_reduce(workers, P, NETWORK)], **EXACT)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(
    "compute", [1.0, 30.0]
)  # a backward that hides nothing much, one that hides the first
def test_an_all_reduce_in_two_buckets(share: float, compute: float):
    work = Work(P, forward_share=0.25, local_seconds=0.125, pieces=((0.0, share), (1.0, 1 - share)))
    first, rest = (ring_all_reduce(4, part * P, NETWORK) for part in (share, 1 - share))
    expected = all_reduce_step(compute, 0.75 * compute, first, rest) + 0.125
    assert step_of(cluster_of(1, 4, compute=str(compute)), Method(), work) == pytest.approx(expected, **EXACT)


def test_an_average_that_needs_the_present_gradients_costs_what_its_all_reduce_would():
    work = Work(P, local_seconds=0.125)
    for workers in (3, 8):
        cluster = cluster_of(1, workers, compute="5")
        inside = Method(topology.build("complete", workers))
        assert step_of(cluster, inside, work) == pytest.approx(step_of(cluster, Method(), work), **EXACT)


@pytest.mark.parametrize("compute", [1.0, 12.0, 60.0])
@pytest.mark.parametrize("half_duplex", [False, True])
@pytest.mark.parametrize("pieces", [1, 8])
def test_steps_that_hide_their_exchange(compute: float, half_duplex: bool, pieces: int):
    """One worker a host."""
    cluster = cluster_of(1, 8, compute=str(compute), half_duplex=half_duplex)
    wire = Wire(L, 8e6, half_duplex)
    exchanges = {
        "complete": [ring_all_reduce(8, P, wire)],
        "ring": [wire.both_ways(P, sharing=2)],
        "one_peer_exponential": [wire.both_ways(P)],
        "base_graph": [wire.both_ways(P)],
    }
    for name, seconds in exchanges.items():
        method = Method(topology.build(name, 8), bucket_bytes=P / pieces, behind=True)
        expected = pytest.approx(gossip_step(compute, seconds), **EXACT)
        assert step_of(cluster, method) == expected, name


def test_half_duplex_takes_twice_as_long_for_the_bytes():
    for name in ("complete", "ring", "one_peer_exponential"):
        rounds = topology.build(name, 8)
        once, twice = (
            rounds_of(cluster_of(latency=0.0, half_duplex=half, hosts=8), rounds) for half in (0, 1)
        )
        assert twice == pytest.approx([2 * each for each in once], **EXACT)


@pytest.mark.parametrize("per_host", [2, 3, 4, 8])
@pytest.mark.parametrize("compute", [1.0, 100.0])
def test_an_average_of_two_hosts_by_shards(per_host: int, compute: float):
    cluster = cluster_of(per_host, compute=str(compute))
    rounds = topology.build("hierarchical", 2 * per_host, cluster.hosts)
    seconds = hierarchical_exchange(per_host, P, INSIDE, NETWORK)
    assert rounds_of(cluster, rounds) == pytest.approx([seconds] * rounds.period, **EXACT)
    method = Method(rounds, bucket_bytes=P, behind=True)
    assert step_of(cluster, method) == pytest.approx(gossip_step(compute, [seconds]), **EXACT)


@pytest.mark.parametrize("per_host", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("compute", [1.0, 9.0, 100.0])
def test_the_two_rounds_of_aer(per_host: int, compute: float):
    cluster = cluster_of(per_host, compute=str(compute))
    rounds = topology.build("aer", 2 * per_host, cluster.hosts)
    seconds = aer_rounds(per_host, P, INSIDE, NETWORK)
    assert sorted(rounds_of(cluster, rounds)) == pytest.approx(sorted(seconds), **EXACT)
    method = Method(rounds, bucket_bytes=P, behind=True)
    assert step_of(cluster, method) == pytest.approx(gossip_step(compute, seconds), **EXACT)


def test_four_hosts_of_aer_have_half_of_their_pairs_on_the_network_at_once():
    """So that workers wait for the union in every second round of theirs, which takes its full time."""
    cluster = cluster_of(4, 4, compute="0.001")
    union, inside = aer_rounds(4, P, INSIDE, NETWORK)
    found = rounds_of(cluster, topology.build("aer", 16, cluster.hosts))
    assert found == pytest.approx([union] * 4, **EXACT)
    method = Method(topology.build("aer", 16, cluster.hosts), bucket_bytes=P, behind=True)
    assert (union + inside) / 2 <= step_of(cluster, method) <= union


LAWS = ["gaussian(1, 0.1)", "lognormal(1, 0.3)", "exponential(0.5, 0.5)", "empirical(0.5, 1, 1.1, 3)"]


@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("workers", [2, 8, 64])
def test_a_barrier_waits_for_the_slowest(text: str, workers: int):
    """An all-reduce of next to nothing, 1,500 steps: within five standard errors."""
    ends = Iteration(Cluster(text), Work(1.0), Method(), workers).ends(1500).max(axis=1)
    steps = np.diff(ends)
    error = 5 * steps.std() / math.sqrt(len(steps))
    assert abs(steps.mean() - expected_slowest(law(text), workers)) <= error


def test_known_means_of_the_slowest():
    gaussian, exponential = law("gaussian(1, 0.1)"), law("exponential(0.5, 0.5)")
    # 1/sqrt(pi) and 3/(2 sqrt(pi)) deviations, and the harmonic numbers.
    assert expected_slowest(gaussian, 2) == pytest.approx(1 + 0.1 / math.sqrt(math.pi), rel=1e-4)
    assert expected_slowest(gaussian, 3) == pytest.approx(1 + 0.15 / math.sqrt(math.pi), rel=1e-4)
    for workers in (1, 8, 64):
        expected = 0.5 + 0.5 * sum(1 / k for k in range(1, workers + 1))
        assert expected_slowest(exponential, workers) == pytest.approx(expected, rel=1e-4)
    assert expected_slowest(law("2"), 64) == 2.0


def test_the_slowest_of_many_normal_times_grows_as_the_root_of_a_logarithm():
    growth = [
        (expected_slowest(law("gaussian(1, 0.1)"), n) - 1) / (0.1 * math.sqrt(2 * math.log(n)))
        for n in (8, 64, 512, 4096)
    ]
    assert growth == sorted(growth)
    assert all(0.65 < each < 1 for each in growth) and growth[-1] > 0.85


@pytest.mark.parametrize(
    "wrong", [{"latency_seconds": -1.0}, {"bits_per_second": 0.0}, {"bits_per_second": math.nan}]
)
def test_what_is_no_link(wrong: dict):
    with pytest.raises(SettingsError):
        Wire(**{"latency_seconds": 0.0, "bits_per_second": 1e9, **wrong})
