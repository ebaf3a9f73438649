"""A round as a value."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.rounds import Round
from hf_decentral.topology import build


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


@settings(deadline=None)
@given(symmetric_rounds())
def test_matchings_hold_every_pair_once_and_nobody_twice(round: Round) -> None:
    matrix = round.matrix()
    workers = range(round.workers)
    pairs = [pair for matching in round.matchings for pair in matching]
    assert sorted(pairs) == [(i, j) for i in workers for j in workers if i < j and matrix[i, j]]
    for matching in round.matchings:
        met = [worker for pair in matching for worker in pair]
        assert len(met) == len(set(met))
    assert len(round.matchings) < 2 * max(1, *(len(round.senders(worker)) for worker in workers))
    assert round.mutual


def test_a_swap_gives_each_the_numbers_of_its_partner() -> None:
    swap = build("ring", 5)(0).swaps[0]
    assert swap.rows == (((1, 1.0),), ((0, 1.0),), ((3, 1.0),), ((2, 1.0),), ((4, 1.0),))


def test_rounds_are_mutual_where_weights_are_symmetric() -> None:
    assert build("ring", 5)(0).mutual
    assert not build("one_peer_exponential", 5)(0).mutual
    assert not Round((((0, 0.5), (1, 0.5)), ((0, 0.25), (1, 0.75)))).mutual
