"""A round as a value."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.rounds import Round


@st.composite
def symmetric_rounds(draw: st.DrawFn) -> Round:
    """Random symmetric doubly stochastic weights: a mixture of means over random pairs."""
    workers = draw(st.integers(2, 9))
    m = torch.eye(workers, dtype=torch.float64)
    for _ in range(draw(st.integers(0, 4))):
        i, j = draw(st.lists(st.integers(0, workers - 1), min_size=2, max_size=2, unique=True))
        pair = Round.average([(i, j)], workers).matrix()
        m = pair @ m @ pair
    return Round.from_matrix(m)


@settings(deadline=None)
@given(symmetric_rounds())
def test_matrix_and_rows_say_the_same(round: Round) -> None:
    assert Round.from_matrix(round.matrix()) == round


@settings(deadline=None)
@given(symmetric_rounds())
def test_senders_and_receivers_mirror_each_other(round: Round) -> None:
    for i in range(round.workers):
        assert all(i in round.receivers(j) for j in round.senders(i))
        assert all(i in round.senders(j) for j in round.receivers(i))


@settings(deadline=None)
@given(symmetric_rounds(), st.data())
def test_a_lost_weight_goes_back_to_the_receiver(round: Round, data: st.DataObject) -> None:
    dead = data.draw(st.sets(st.integers(0, round.workers - 1), max_size=round.workers - 1))
    m = round.without(dead).matrix()
    ones = torch.ones(round.workers, dtype=torch.float64)
    assert torch.allclose(m.sum(0), ones)
    assert torch.allclose(m.sum(1), ones)
    assert all(m[i, i] == 1 for i in dead)


def test_groups_idle_and_identity() -> None:
    assert Round.identity(3).idle
    assert Round.identity(3).groups == ()
    mean = Round.average([range(3), (3, 4)], 6)
    assert mean.groups == ((0, 1, 2), (3, 4))
    assert mean.senders(5) == ()
    uneven = Round((((0, 0.25), (1, 0.75)), ((0, 0.75), (1, 0.25))))
    assert uneven.groups is None


def test_directed_weights_have_receivers_of_their_own() -> None:
    round = Round((((0, 0.5), (2, 0.5)), ((0, 0.5), (1, 0.5)), ((1, 0.5), (2, 0.5))))
    assert [round.senders(i) for i in range(3)] == [(2,), (0,), (1,)]
    assert [round.receivers(i) for i in range(3)] == [(1,), (2,), (0,)]
    assert round.matrix().tolist() == [[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0.5]]
    assert (round.workers, round.idle, round.groups) == (3, False, None)
