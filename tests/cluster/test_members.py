"""Workers that come and go in lock step."""

from __future__ import annotations

import pytest
import torch

from hf_decentral import topology
from hf_decentral.cluster.clock import Clock
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.members import Members, givers, neighbours, welcome_
from hf_decentral.errors import SettingsError, TopologyError


def test_the_neighbours_of_all_rounds_of_a_period():
    assert neighbours(topology.build("ring", 5)) == ((1, 4), (0, 2), (1, 3), (2, 4), (0, 3))
    # Directed: whoever hears somebody is its neighbour too. Distances 1, 2 and 4 of 8.
    assert neighbours(topology.build("one_peer_exponential", 8))[0] == (1, 2, 4, 6, 7)
    assert neighbours(topology.build("complete", 1)) == ((),)
    both = topology.then(topology.build("ring", 6), 5, topology.build("complete", 6))
    assert neighbours(both)[0] == (1, 2, 3, 4, 5)


def test_who_is_absent_when():
    members = Members(6, deaths={0: 5, 1: 5, 2: 9}, joins={1: 7, 2: 3, 4: 2})
    found = {time: sorted(members.absent(time)) for time in (0, 2, 3, 5, 7, 9)}
    assert found == {0: [2, 4], 2: [2], 3: [], 5: [0, 1], 7: [0], 9: [0, 2]}
    assert members.times == (2, 3, 5, 7, 9)
    assert members.joining(3) == (2,) and members.joining(5) == ()


@pytest.mark.parametrize("name", [name for name, entry in topology.TABLE.items() if entry.serves(6)])
def test_the_rounds_of_those_who_are_there_keep_their_mean(name: str):
    whole = topology.build(name, 6)
    members = Members(6, deaths={0: 4}, joins={5: 2, 0: 9})
    present = members.present(whole)
    for step in range(12):
        matrix, absent = present(step).matrix(), members.absent(step)
        assert torch.allclose(matrix.sum(0), torch.ones(6, dtype=torch.float64))
        assert torch.allclose(matrix.sum(1), torch.ones(6, dtype=torch.float64))
        for worker in absent:
            assert matrix[worker, worker] == 1
        assert present(step) == whole(step).without(absent)
    assert present.period is None
    known = present.repeated()
    assert (known is None) == (whole.repeated() is None)
    assert known is None or {present(step) for step in range(12)} <= set(known)


def test_nothing_changes_where_nobody_comes_or_goes():
    ring = topology.build("ring", 4)
    assert Members(4).present(ring) is ring


def test_who_joins_begins_with_the_mean_of_its_neighbours():
    near = neighbours(topology.build("ring", 5))
    assert givers(2, near, {2}) == (1, 3)
    assert givers(2, near, {2, 3}) == (1,)
    assert givers(2, near, {1, 2, 3}) == (0, 4)
    assert givers(2, near, {0, 1, 3, 4}) == ()
    x = torch.randn(5, 3)
    before = x.clone()
    assert welcome_(x, 2, (1, 3)) is x
    assert torch.allclose(x[2], (before[1] + before[3]) / 2)
    others = [0, 1, 3, 4]
    assert torch.equal(x[others], before[others])
    assert torch.equal(welcome_(before.clone(), 2, ()), before)


def test_a_clock_of_a_run_in_which_the_slowest_dies():
    members, ring = Members(5, deaths={3: 10}), topology.build("ring", 5)
    present, clock = members.present(ring), Clock(Cluster("1", slow={3: 4.0}), 5)
    for step in range(20):
        clock.advance(present(step), "awc", absent=members.absent(step))
    assert 40 <= clock.seconds <= 50


@pytest.mark.parametrize(
    "wrong",
    [{"deaths": {4: 1}}, {"joins": {-1: 1}}, {"deaths": {0: -1}}, {"deaths": {1: 3}, "joins": {1: 3}}],
)
def test_what_cannot_be_meant(wrong: dict):
    with pytest.raises(SettingsError):
        Members(4, **wrong)


def test_somebody_must_be_there():
    with pytest.raises(TopologyError):
        Members(2, deaths={0: 3, 1: 5})
    with pytest.raises(TopologyError):
        Members(2, joins={0: 3, 1: 5})
    Members(2, deaths={0: 5}, joins={1: 4})
