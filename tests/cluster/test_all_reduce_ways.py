"""An all-reduce takes the ring or the tree, whichever is faster for its bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.links import Links

L, RATE = 1e-3, 1e6  # seconds, and bytes per second of 8mbit


@pytest.mark.parametrize("workers", [2, 4, 8, 100, 1024])
@pytest.mark.parametrize("size", [0.0, 1e3, 1e5, 1e8])
def test_it_is_the_lesser_of_two_closed_forms(workers, size):
    groups = Links(Cluster(link="8mbit", latency=L), workers).together().groups
    ring = 2 * (workers - 1) * (L + size / workers / RATE)
    tree = 2 * math.ceil(math.log2(workers)) * L + 2 * size / RATE
    assert groups.seconds(size) == pytest.approx([min(ring, tree)])


def test_inside_a_host_a_chain_leads_to_the_tree():
    """Two hosts of four: 3 messages inside and one between, up and down; the network carries bytes twice."""
    cluster = Cluster(
        link="8mbit", latency=L, hosts=(0,) * 4 + (1,) * 4, inside="80mbit", inside_latency=1e-4
    )
    latency, per_byte = Links(cluster, 8).tree_all_reduce(range(8))
    assert latency == pytest.approx(2 * (3 * 1e-4 + L))
    assert per_byte == pytest.approx(2 / RATE)


def test_what_a_library_was_measured_to_need_stretches_bytes_only():
    quick = Links(Cluster(link="8mbit", latency=L), 8)
    slow = Links(Cluster(link="8mbit", latency=L, collective=1.5), 8)
    assert slow.tree_all_reduce(range(8))[0] == quick.tree_all_reduce(range(8))[0]
    assert np.isclose(slow.tree_all_reduce(range(8))[1], 1.5 * quick.tree_all_reduce(range(8))[1])
