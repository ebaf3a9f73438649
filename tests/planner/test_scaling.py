"""Curves over the number of workers."""

from __future__ import annotations

import pytest

from hf_decentral.planner.scaling import CURVES, scaling
from tests.planner.clusters import cluster


def test_hosts_double():
    points = scaling(cluster(hosts=3, each=2), most=64)
    assert sorted({point.workers for point in points}) == [2, 4, 8, 16, 32, 64]
    assert {point.topology for point in points} == set(CURVES)
    assert all(0 < point.efficiency <= 1.0001 for point in points)


def test_a_paired_exchange_costs_the_same_with_many():
    points = scaling(cluster(link="200mbit"), most=512, curves=["one_peer_exponential", "allreduce"])
    pairs = [point.step_seconds for point in points if point.topology == "one_peer_exponential"]
    assert max(pairs) == pytest.approx(min(pairs), rel=0.01)
    reduced = [point.step_seconds for point in points if point.topology == "allreduce"]
    assert reduced[-1] > reduced[0]
    # A tree's latency grows with the logarithm, a ring's would be 1,022 messages of 0.1 ms for each bucket.
    assert reduced[-1] < 1.25 * reduced[3]


def test_slow_workers_stay_slow():
    points = scaling(cluster(slow={0: 2.0}), most=16, curves=["ring"])
    assert all(point.efficiency < 0.55 for point in points)
