"""Rounds to a millionth of the consensus distance."""

from __future__ import annotations

import math

import pytest
import torch

from hf_decentral.topology import TABLE, build, custom, spectrum
from hf_decentral.topology.speed import Speed, rounds_of_circulant, speed


@pytest.mark.parametrize("name", [name for name, entry in TABLE.items() if entry.exact])
@pytest.mark.parametrize("workers", [5, 8, 1000])
def test_what_is_exact_needs_one_period(name: str, workers: int) -> None:
    topology = build(name, workers)
    assert speed(topology) == Speed(topology.period, topology.period)


def test_one_worker_is_its_own_mean() -> None:
    assert all(speed(build(name, 1)).rounds == 0 for name in TABLE)


@pytest.mark.parametrize("name", ["ring", "star", "torus", "hypercube", "static_exponential", "d_equistatic"])
def test_a_static_one_takes_as_long_as_its_eigenvalue_says(name: str) -> None:
    topology = build(name, 16)
    found = speed(topology)
    assert found.rounds is not None and found.how == "run"
    # A start has some of the slowest direction, not all: fewer rounds than at worst, by a few.
    worst = math.log(1e6) / -math.log(spectrum(topology).contraction)
    assert 0.75 * worst < found.rounds <= math.ceil(worst)


def test_what_is_computed_is_what_is_counted() -> None:
    ring = build("ring", 32)
    counted, computed = speed(ring).rounds, rounds_of_circulant(ring(0), 1e6)
    assert counted is not None and computed is not None
    assert counted == pytest.approx(computed, rel=0.03)
    directed = build("static_exponential", 50)
    assert rounds_of_circulant(directed(0), 1e6) == pytest.approx(speed(directed).rounds, abs=1)


def test_a_long_ring_is_computed() -> None:
    found = speed(build("ring", 1000))
    assert found.how == "eigenvalues" and found.rounds is not None
    assert found.rounds == pytest.approx(813_762, rel=0.01)


def test_redrawn_rounds_are_as_fast_as_expected() -> None:
    """Each round leaves (n - 2) / (2 (n - 1)) of the squared distance."""
    found = speed(build("random_matching", 64))
    expected = math.log(1e12) / -math.log(62 / 126)
    assert (found.exact_after, found.how) == (None, "median")
    assert found.rounds == pytest.approx(expected, abs=4)


def test_what_takes_too_long_is_not_waited_for() -> None:
    slow = torch.eye(4, dtype=torch.float64) * (1 - 3e-6) + (1 - torch.eye(4)) * 1e-6
    slow[0, 0] += 1e-7  # no circulant, so that it must be run
    slow[1, 1] += 1e-7
    slow[0, 1] -= 1e-7
    slow[1, 0] -= 1e-7
    assert speed(custom(slow), most=100) == Speed(None)


def test_another_factor() -> None:
    ring = build("ring", 16)
    ten, million = speed(ring, 10).rounds, speed(ring, 1e6).rounds
    assert ten is not None and million is not None
    assert ten < million / 4
