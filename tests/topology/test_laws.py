"""Laws that every topology of the table keeps, for any number of workers on any hosts."""

from __future__ import annotations

import pytest
import torch

from hf_decentral.topology import TABLE, Hosts, build, spectrum
from hf_decentral.topology.spectrum import radius
from hf_decentral.topology.traffic import sent

SIZES = range(1, 34)


def layouts(workers: int) -> list[Hosts]:
    """One worker a host, one host, two, four, and uneven ones in an unusual order of numbers."""
    uneven = [7] * (workers // 2) + [3] * (workers - workers // 2 - workers // 5) + [5] * (workers // 5)
    halves, quarters = [i * 2 // workers for i in range(workers)], [i % 4 for i in range(workers)]
    return [None, [0] * workers, halves, quarters, uneven]


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("workers", SIZES)
def test_weights_are_doubly_stochastic_and_rows_sorted(name: str, workers: int) -> None:
    for hosts in layouts(workers):
        for round in build(name, workers, hosts).rounds():
            m = round.matrix()
            ones = torch.ones(workers, dtype=torch.float64)
            assert torch.allclose(m.sum(0), ones, atol=1e-12, rtol=0)
            assert torch.allclose(m.sum(1), ones, atol=1e-12, rtol=0)
            assert (m >= 0).all()
            assert all([j for j, _ in row] == sorted({j for j, _ in row}) for row in round.rows)
            assert max(sent(round)) <= 2 * workers


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("workers", SIZES)
def test_differences_shrink_over_a_period(name: str, workers: int) -> None:
    for hosts in layouts(workers):
        topology = build(name, workers, hosts)
        product = torch.eye(workers, dtype=torch.float64)
        for round in topology.rounds():
            product = round.matrix() @ product
        assert radius(product - 1.0 / workers) < 1 - 1e-6


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("workers", [1, 2, 5, 12])
def test_rounds_are_pure_values_that_repeat(name: str, workers: int) -> None:
    one, other = build(name, workers), build(name, workers)
    period = one.period or 1
    assert one == other
    for step in (0, 1, 7, 10_001):
        assert one(step) == one(step + period) == other(step)
        assert hash(one(step)) == hash(other(step))


@pytest.mark.parametrize("name", TABLE)
def test_one_worker_talks_to_nobody(name: str) -> None:
    for round in build(name, 1).rounds():
        assert round.idle
        assert round.rows == (((0, 1.0),),)


@pytest.mark.parametrize("name", TABLE)
def test_a_thousand_workers_are_cheap(name: str) -> None:
    topology = build(name, 1000, [i // 8 for i in range(1000)])
    assert all(round.workers == 1000 for round in topology.rounds())


@pytest.mark.parametrize("name", [name for name, entry in TABLE.items() if entry.exact])
@pytest.mark.parametrize("workers", SIZES)
def test_exact_where_it_is_promised(name: str, workers: int) -> None:
    topology = build(name, workers)
    assert topology.name == name
    product = torch.eye(workers, dtype=torch.float64)
    for count, round in enumerate(topology.rounds(), 1):
        product = round.matrix() @ product
        apart = float((product - 1 / workers).abs().max())
        assert (apart < 1e-12) == (count == topology.period)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_topology_bears_some_step(name: str, workers: int) -> None:
    numbers = spectrum(build(name, workers))
    assert 0.6 < numbers.largest_stable_step <= 2.01
    assert 0 <= numbers.second_eigenvalue <= numbers.contraction + 1e-9 < 1
