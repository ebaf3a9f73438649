"""Virtual time in lock step: against a recursion in plain loops, known values, and laws of max and plus."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hf_decentral import topology
from hf_decentral.cluster.clock import Clock
from hf_decentral.cluster.laws import Cluster
from hf_decentral.errors import SettingsError, TopologyError
from hf_decentral.rounds import Round
from hf_decentral.topology import Topology

NOISY = Cluster("exponential(0.5, 0.5)")
P = 1e6  # one second a message at 8 Mbit/s


def clock_of(cluster: Cluster, rounds: Topology, order: str, steps: int, seed: int = 0, **how) -> Clock:
    """A clock after some steps in which a worker sends ``P`` bytes to each that hears it."""
    clock = Clock(cluster, rounds.workers, seed, topology=rounds, **how)
    for step in range(steps):
        round = rounds(step)
        copies = sum(len(round.senders(i)) for i in range(round.workers)) / round.workers
        clock.advance(round, order, copies * P)
    return clock


def loops(cluster: Cluster, rounds: Topology, order: str, steps: int, comm: float) -> list[float]:
    """The recursion worker by worker, where every message takes ``comm`` seconds."""
    times = [0.0] * rounds.workers
    for step in range(steps):
        computing = [cluster.seconds_of(i, step) for i in range(rounds.workers)]
        begun = [t + c for t, c in zip(times, computing, strict=True)] if order == "atc" else times
        after = []
        for i, own in enumerate(times):
            heard = rounds(step).senders(i)
            arrived = max(begun[j] for j in (i, *heard)) + comm if heard else own
            after.append(arrived + computing[i] if order == "cta" else max(own + computing[i], arrived))
        times = after
    return times


@pytest.mark.parametrize("order", ["awc", "atc", "cta"])
@pytest.mark.parametrize("name", ["one_peer_exponential", "base_graph"])
@pytest.mark.parametrize("link", ["none", "8mbit"])
def test_the_recursion(order: str, name: str, link: str):
    rounds = topology.build(name, 7)
    clock = clock_of(Cluster("exponential(0.5, 1)", link=link), rounds, order, 40)
    expected = loops(Cluster("exponential(0.5, 1)"), rounds, order, 40, 0.0 if link == "none" else 1.0)
    assert clock.times.tolist() == pytest.approx(expected, abs=1e-9)
    assert clock.seconds == pytest.approx(max(expected))


@pytest.mark.parametrize("compute", [0.5, 3.0])
def test_equal_workers_take_the_longer_of_computing_and_talking(compute: float):
    cluster = Cluster(str(compute), link="8mbit", latency=0.1)
    ring = topology.build("ring", 6)
    assert clock_of(cluster, ring, "awc", 50).seconds == pytest.approx(50 * max(compute, 2.1))
    for order in ("atc", "cta"):  # nothing is hidden
        assert clock_of(cluster, ring, order, 50).seconds == pytest.approx(50 * (compute + 2.1))


def test_hearing_fewer_is_never_slower_path_by_path():
    found = {name: Clock(NOISY, 8) for name in ("ring", "complete", "barrier")}
    ring, everybody = topology.build("ring", 8)(0), topology.build("complete", 8)(0)
    for _ in range(4000):
        found["ring"].advance(ring, "awc")
        found["complete"].advance(everybody, "awc")
        found["barrier"].advance(everybody, "atc")
        for less, more in pairwise(found.values()):
            assert (less.times <= more.times + 1e-9).all()
    # Seconds a step of eight workers with 0.5 + Exp(0.5), at 400 steps of another generator; the last one is
    # 0.5 + 0.5 (1 + 1/2 + ... + 1/8) = 1.859 for ever so many.
    steps = {name: clock.seconds / 4000 for name, clock in found.items()}
    assert steps["ring"] == pytest.approx(1.177, rel=0.03)
    assert steps["complete"] == pytest.approx(1.261, rel=0.03)
    assert steps["barrier"] == pytest.approx(1.859, rel=0.02)


def test_a_straggler_sets_the_pace_of_everybody_it_is_connected_to():
    clock = clock_of(Cluster("1", slow={3: 2.5}), topology.build("ring", 8), "awc", 100)
    assert clock.seconds == 250
    assert clock.times.min() >= 250 - 4 * 2.5  # at most so many steps ahead as it is away


def test_rare_exchanges_may_travel_behind_several_steps():
    cluster = Cluster("1", link="8mbit")
    rounds = topology.every(3, topology.build("one_peer_exponential", 4))
    assert clock_of(cluster, rounds, "atc", 30).seconds == 10 * (3 + 1)
    slow = Cluster("1", link="8mbit", latency=2.0)  # three seconds a message
    assert clock_of(slow, rounds, "awc", 30).seconds == 10 * (1 + 1 + 3)
    assert clock_of(slow, rounds, "awc", 30, delay=3).seconds == 30


def test_exchanges_under_way_at_once_share_their_links():
    cluster = Cluster("1", link="8mbit", latency=1.0)  # two seconds a message
    rounds = topology.build("one_peer_exponential", 4)
    assert clock_of(cluster, rounds, "awc", 40, delay=5).seconds == pytest.approx(80, abs=10)
    assert clock_of(cluster, rounds, "awc", 40).seconds == 80


def test_nobody_waits_in_idle_rounds():
    clock = Clock(NOISY, 5)
    for _ in range(10):
        clock.advance(Round.identity(5), "awc")
    alone = [sum(NOISY.seconds_of(i, step) for step in range(10)) for i in range(5)]
    assert clock.times.tolist() == pytest.approx(alone)


@pytest.mark.parametrize("order", ["awc", "atc", "cta"])
def test_a_clock_goes_on_where_it_stood(order: str):
    cluster, rounds = Cluster("lognormal(1, 0.5)", link="8mbit"), topology.build("one_peer_exponential", 6)
    whole, half = (clock_of(cluster, rounds, order, steps, seed=3, delay=2) for steps in (30, 15))
    resumed = Clock(cluster, 6, seed=3, delay=2)
    resumed.load(half.state())
    for step in range(15, 30):
        resumed.advance(rounds(step), order, P)
    assert resumed.step == 30 and (resumed.times == whole.times).all()


def test_other_seeds_are_other_times():
    rounds = topology.build("ring", 4)
    assert (
        clock_of(NOISY, rounds, "awc", 5, seed=1).seconds != clock_of(NOISY, rounds, "awc", 5, seed=2).seconds
    )


def test_nobody_waits_for_the_absent_and_they_come_back_with_the_slowest():
    cluster, rounds = Cluster("1", slow={3: 10.0}), topology.build("complete", 4)
    clock, without = Clock(cluster, 4), topology.without([3], rounds)
    for step in range(5):
        clock.advance(without(step), "awc", absent={3})
    assert clock.times.tolist() == [5.0] * 4
    clock.advance(rounds(5), "atc")
    assert clock.seconds == 15
    with pytest.raises(TopologyError):
        clock.advance(rounds(6), "awc", absent=range(4))


def test_hosts_and_shards_enter():
    hosts = (0, 0, 1, 1)
    cluster = Cluster("0.001", link="8mbit", hosts=hosts, inside="none")
    rounds = topology.build("hierarchical", 4, hosts)
    clock = Clock(cluster, 4, topology=rounds)
    clock.advance(rounds(0), "atc", 1.5 * P)  # one copy over the network, which each half of a host sends
    assert clock.seconds == pytest.approx(1.001)
    clock = Clock(cluster, 4)
    clock.advance(rounds(0), "atc", 1.5 * P)  # the same mean by a ring
    assert clock.seconds == pytest.approx(1.501)


def test_what_cannot_be_meant():
    clock, ring = Clock(Cluster(), 4), topology.build("ring", 4)(0)
    with pytest.raises(SettingsError, match="'act'"):
        clock.advance(ring, "act")
    with pytest.raises(SettingsError, match="workers"):
        clock.advance(topology.build("ring", 5)(0), "atc")
    with pytest.raises(SettingsError, match="delay"):
        Clock(Cluster(), 4, delay=0)
    with pytest.raises(SettingsError, match="slow"):
        Clock(Cluster(slow={4: 2.0}), 4)
