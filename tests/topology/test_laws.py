"""Laws that every topology of the table keeps, for any number of workers on any hosts."""

from __future__ import annotations

import pytest
import torch

from hf_decentral.errors import TopologyError
from hf_decentral.rounds import Round
from hf_decentral.topology import TABLE, Hosts, Topology, build, spectrum
from hf_decentral.topology.spectrum import radius
from hf_decentral.topology.traffic import sent

SIZES = range(1, 34)
SERVED = [(name, workers) for name, entry in TABLE.items() for workers in SIZES if entry.serves(workers)]
REDRAWN = {"random_matching", "random_ring"}


def some(topology: Topology) -> tuple[Round, ...]:
    """A period, or some rounds where each is drawn for itself."""
    return topology.rounds(24 if topology.period is None else None)


def layouts(workers: int) -> list[Hosts]:
    """One worker a host, one host, two, four, and uneven ones in an unusual order of numbers."""
    uneven = [7] * (workers // 2) + [3] * (workers - workers // 2 - workers // 5) + [5] * (workers // 5)
    halves, quarters = [i * 2 // workers for i in range(workers)], [i % 4 for i in range(workers)]
    return [None, [0] * workers, halves, quarters, uneven]


@pytest.mark.parametrize(("name", "workers"), SERVED)
def test_weights_are_doubly_stochastic_and_rows_sorted(name: str, workers: int) -> None:
    for hosts in layouts(workers):
        for round in some(build(name, workers, hosts)):
            m = round.matrix()
            ones = torch.ones(workers, dtype=torch.float64)
            assert torch.allclose(m.sum(0), ones, atol=1e-12, rtol=0)
            assert torch.allclose(m.sum(1), ones, atol=1e-12, rtol=0)
            assert (m >= 0).all()
            assert all([j for j, _ in row] == sorted({j for j, _ in row}) for row in round.rows)
            assert max(sent(round)) <= 2 * workers


@pytest.mark.parametrize(("name", "workers"), SERVED)
def test_differences_shrink_over_a_period(name: str, workers: int) -> None:
    for hosts in layouts(workers):
        topology = build(name, workers, hosts)
        product = torch.eye(workers, dtype=torch.float64)
        for round in some(topology):
            product = round.matrix() @ product
        assert radius(product - 1.0 / workers) < 1 - 1e-6


@pytest.mark.parametrize(("name", "workers"), [each for each in SERVED if each[1] in (1, 2, 5, 8, 12)])
def test_rounds_are_pure_values_that_repeat(name: str, workers: int) -> None:
    one, other = build(name, workers), build(name, workers)
    assert one == other
    assert (one.period is None) == (name in REDRAWN)
    for step in (0, 1, 7, 10_001):
        assert one(step) == other(step)
        assert hash(one(step)) == hash(other(step))
        if one.period is not None:
            assert one(step) == one(step + one.period)


@pytest.mark.parametrize("name", TABLE)
def test_what_is_not_served_is_refused_with_the_nearest_that_is(name: str) -> None:
    for workers in SIZES:
        if TABLE[name].serves(workers):
            assert build(name, workers).workers == workers
            continue
        below = max((n for n in range(2, workers) if TABLE[name].serves(n)), default=None)
        above = min(n for n in range(workers + 1, 65) if TABLE[name].serves(n))
        told = f"nearest: {above}" if below is None else f"nearest: {below} and {above}"
        with pytest.raises(TopologyError, match=f"'{name}'(.|\n)*{told}"):
            build(name, workers)


@pytest.mark.parametrize("name", TABLE)
def test_one_worker_talks_to_nobody(name: str) -> None:
    for round in build(name, 1).rounds():
        assert round.idle
        assert round.rows == (((0, 1.0),),)


@pytest.mark.parametrize("name", TABLE)
def test_a_thousand_workers_are_cheap(name: str) -> None:
    workers = 1000 if TABLE[name].serves(1000) else 1024
    topology = build(name, workers, [i // 8 for i in range(workers)])
    assert all(round.workers == workers for round in topology.rounds())


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


# Many neighbours and a small weight of one's own bear least.
LEAST = {"hypercube": 0.49}


@pytest.mark.parametrize(("name", "workers"), [each for each in SERVED if each[1] in (1, 2, 3, 8)])
def test_every_topology_bears_some_step(name: str, workers: int) -> None:
    numbers = spectrum(build(name, workers))
    assert LEAST.get(name, 0.6) < numbers.largest_stable_step <= 2.01
    assert 0 <= numbers.second_eigenvalue <= numbers.contraction + 1e-9 < 1
