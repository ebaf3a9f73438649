"""Topologies that draw every round anew: the same in every process, and alike likely."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from hf_decentral import decentralize
from hf_decentral.errors import SettingsError
from hf_decentral.topology import build, every, spectrum
from hf_decentral.topology.drawn import permutation
from hf_decentral.transport import Memory


def test_a_draw_is_this_one_for_ever() -> None:
    """Runs that resume, and hosts with other versions of libraries, must draw what was drawn before."""
    assert permutation(8, "matching", 0, 3) == [4, 5, 3, 1, 7, 0, 2, 6]
    assert build("random_matching", 6)(10_001).groups == ((0, 4), (1, 5), (2, 3))


def test_all_orders_are_alike_likely() -> None:
    found = Counter(tuple(permutation(4, seed)) for seed in range(24_000))
    assert len(found) == 24
    # 1,000 each are expected; the standard deviation is 31.
    assert all(850 < count < 1150 for count in found.values())


@pytest.mark.parametrize("workers", [2, 3, 8, 9])
def test_a_matching_pairs_all_but_an_odd_one(workers: int) -> None:
    topology = build("random_matching(7)", workers)
    for step in range(20):
        pairs = topology(step).groups or ()
        assert len(pairs) == workers // 2
        assert len({worker for pair in pairs for worker in pair}) == workers // 2 * 2


def test_over_time_everybody_meets_everybody() -> None:
    met = Counter(pair for round in build("random_matching", 6).rounds(600) for pair in round.groups or ())
    assert len(met) == 15
    assert all(80 < count < 165 for count in met.values()), "120 each are expected, give or take 10"


def test_a_random_ring_is_one_ring() -> None:
    topology = build("random_ring(3)", 9)
    assert len({topology(step) for step in range(50)}) == 50
    for step in range(20):
        round, place, seen = topology(step), 0, [0]
        while len(seen) < 9:
            place = next(j for j in round.senders(place) if j not in seen)
            seen.append(place)
        assert 0 in round.senders(place)
        assert all(len(row) == 3 for row in round.rows)


def test_a_seed_is_another_sequence() -> None:
    for name in ("random_matching", "random_ring"):
        one, other = build(f"{name}(1)", 16), build(f"{name}(2)", 16)
        assert build(f"{name}(0)", 16) == build(name, 16) != one
        assert all(one(step) != other(step) for step in range(10))


def test_luck_is_not_called_exact() -> None:
    """Two different matchings of four workers leave nothing, which is no promise."""
    numbers = spectrum(build("random_matching", 4))
    assert numbers.exact is None
    assert numbers.contraction < 1e-12


@pytest.mark.parametrize("name", ["random_matching", "random_ring"])
def test_methods_that_remember_rounds_refuse_them(name: str) -> None:
    p = torch.nn.Parameter(torch.zeros(4, 3))
    for topology in (build(name, 4), every(2, build(name, 4))):
        with pytest.raises(SettingsError, match="repeat"):
            decentralize(torch.optim.SGD([p], lr=0.1), topology, averaging="top_k", transport=Memory(4))
