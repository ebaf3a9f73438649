"""Topologies made of topologies, for every row of the table."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.errors import SettingsError, TopologyError
from hf_decentral.topology import TABLE, above, build, every, lazy, rounds, spectrum, then, without

SIX = [name for name, entry in TABLE.items() if entry.serves(6)]


@pytest.mark.parametrize("name", SIX)
def test_every_puts_idle_rounds_between(name: str) -> None:
    inner = build(name, 6)
    topology = every(3, inner)
    assert topology.period == (3 * inner.period if inner.period else None)
    for step in range(12):
        assert topology(step) == inner(step // 3) if step % 3 == 2 else topology(step).idle
    if inner.period:
        assert spectrum(topology).second_eigenvalue == pytest.approx(spectrum(inner).second_eigenvalue)


@pytest.mark.parametrize("name", SIX)
def test_every_one_is_the_topology_itself(name: str) -> None:
    assert every(1, build(name, 6)).rounds() == build(name, 6).rounds()
    if TABLE[name].serves(5):
        assert every(1, build(name, 5)).rounds() == build(name, 5).rounds()


@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_rounds_do_several_at_once(name: str, count: int) -> None:
    inner = build(name, 6, [0, 0, 1, 1, 2, 2])
    topology = rounds(count, inner)
    for step in range(7):
        expected = torch.eye(6, dtype=torch.float64)
        for k in range(count):
            expected = inner(step * count + k).matrix() @ expected
        torch.testing.assert_close(topology(step).matrix(), expected, rtol=0, atol=1e-12)
        assert topology(step) == topology(step + (topology.period or 0))
    assert (topology.period is None) == (inner.period is None)
    assert topology.hosts == inner.hosts


def test_rounds_that_fill_a_period_are_one_exact_mean() -> None:
    assert [r.groups for r in rounds(3, build("one_peer_exponential", 8)).rounds()] == [(tuple(range(8)),)]
    endless = rounds(2, then(build("ring", 4), 1, build("complete", 4)))
    assert (endless.period, endless.phases) == (None, ())
    assert endless(0) == endless(5), "the mean of a mean"


@pytest.mark.parametrize("name", SIX)
def test_then_begins_the_second_from_its_beginning(name: str) -> None:
    first, second = build("complete", 6), build(name, 6)
    topology = then(first, 5, second)
    assert [topology(step) for step in range(5)] == [first(step) for step in range(5)]
    assert [topology(5 + step) for step in range(9)] == [second(step) for step in range(9)]
    assert topology.period is None
    assert topology.phases == (first, second)
    assert len(topology.rounds()) == 64


def test_what_must_be_opened_beforehand_is_handed_on() -> None:
    warm = then(build("complete", 4), 10, build("ring", 4))
    assert every(2, warm).phases == warm.phases
    assert [phase.workers for phase in without({1}, warm).phases] == [4, 4]
    assert without({1}, warm).phases[0](0).rows[1] == ((1, 1.0),)
    assert every(2, warm).period is None


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        [(name, n) for name, entry in sorted(TABLE.items()) for n in range(2, 15) if entry.serves(n)]
    ),
    st.data(),
)
def test_without_keeps_the_mean_of_the_living(case: tuple[str, int], data: st.DataObject) -> None:
    name, workers = case
    dead = data.draw(st.sets(st.integers(0, workers - 1), max_size=workers - 1))
    hosts = data.draw(st.none() | st.lists(st.integers(0, 3), min_size=workers, max_size=workers))
    topology = build(name, workers, hosts)
    smaller = without(dead, topology)
    assert (smaller.workers, smaller.period) == (workers, topology.period)
    ones = torch.ones(workers, dtype=torch.float64)
    for before, after in zip(topology.rounds(), smaller.rounds(), strict=True):
        matrix = after.matrix()
        assert torch.allclose(matrix.sum(0), ones, atol=1e-12, rtol=0)
        assert torch.allclose(matrix.sum(1), ones, atol=1e-12, rtol=0)
        assert (matrix >= 0).all()
        for worker in range(workers):
            heard = {j for j, _ in after.rows[worker]}
            assert heard == {worker} if worker in dead else not heard & dead
            assert [j for j, _ in after.rows[worker]] == sorted(heard)
        if torch.equal(before.matrix(), before.matrix().T):
            assert torch.allclose(matrix, before.without(dead).matrix(), atol=1e-12, rtol=0)


def test_a_directed_ring_closes_over_a_dead_worker() -> None:
    after = without({2}, build("one_peer_exponential", 5))(0)
    assert after.rows[3] == ((1, 0.5), (3, 0.5))
    assert after.rows[1] == ((0, 0.5), (1, 0.5))


@pytest.mark.parametrize(
    ("name", "workers"), [(name, n) for name, entry in TABLE.items() for n in (1, 2, 5, 6) if entry.serves(n)]
)
def test_lazy_keeps_half_of_the_own_parameters(name: str, workers: int) -> None:
    inner = build(name, workers)
    topology = lazy(inner)
    assert (topology.name, topology.period, topology.hosts) == (f"lazy({name})", inner.period, None)
    for step in range(2 * (inner.period or 1)):
        expected = (torch.eye(workers, dtype=torch.float64) + inner(step).matrix()) / 2
        torch.testing.assert_close(topology(step).matrix(), expected, rtol=0, atol=1e-15)
        assert all(list(row) == sorted(row) for row in topology(step).rows)
        assert topology(step).idle == inner(step).idle


def test_a_lazy_ring_bears_twice_the_step() -> None:
    """Adapt-while-combine bears ``1 + lambda_min``: -1/3 for an even ring and 1/3 for its lazy one."""
    assert spectrum(lazy(build("ring", 6))).largest_stable_step == pytest.approx(4 / 3, abs=1e-5)
    warm = lazy(then(build("complete", 4), 1, build("ring", 4)))
    assert [phase.name for phase in warm.phases] == ["lazy(complete)", "lazy(ring)"]
    assert warm(0) == lazy(build("complete", 4))(0)
    assert warm(5) == lazy(build("ring", 4))(0)
    assert lazy(every(2, build("ring", 4)))(0).idle


def test_what_cannot_be_meant() -> None:
    ring = build("ring", 4)
    with pytest.raises(SettingsError, match="steps=0"):
        every(0, ring)
    with pytest.raises(SettingsError, match="rounds=0"):
        rounds(0, ring)
    with pytest.raises(SettingsError, match="steps=-1"):
        then(ring, -1, ring)
    with pytest.raises(SettingsError, match="4 as in the first"):
        then(ring, 1, build("ring", 5))
    with pytest.raises(SettingsError, match="workers of 0 to 3"):
        without({4}, ring)
    with pytest.raises(TopologyError, match="All 4 workers were taken out"):
        without(range(4), ring)


@pytest.mark.parametrize("name", SIX)
def test_above_keeps_the_rounds_and_says_when(name: str) -> None:
    inner = build(name, 6)
    topology = above(0.5, inner)
    assert (topology.least, topology.name) == (0.5, f"above(0.5, {name})")
    assert topology.rounds() == inner.rounds()
    assert topology.repeated() == inner.repeated()
    assert without({1}, topology).least == 0.5


@pytest.mark.parametrize("distance", [-1.0, float("nan"), float("inf")])
def test_a_distance_that_is_none(distance: float) -> None:
    with pytest.raises(SettingsError, match="0 or more"):
        above(distance, build("ring", 4))


def test_above_stands_outside_of_all_others() -> None:
    asked = above(1, build("ring", 4))
    ring = build("ring", 4)
    for around in (
        lambda: above(2, asked),
        lambda: every(2, asked),
        lambda: rounds(2, asked),
        lambda: lazy(asked),
        lambda: then(asked, 3, ring),
        lambda: then(ring, 3, asked),
    ):
        with pytest.raises(SettingsError, match="outside of all other combinators"):
            around()
    assert above(1, every(2, ring)).least == 1


def test_a_round_in_a_million_steps_is_the_rarest() -> None:
    with pytest.raises(SettingsError, match="at most 500,000"):
        every(10**9, build("one_peer_exponential", 4))
