"""How well configurations mix, against closed forms and against the simulator."""

from __future__ import annotations

import math

import pytest
import torch

from hf_decentral import topology as topologies
from hf_decentral.planner.mixing import MOST_APART, apart, mark, mixing
from hf_decentral.simulator import simulate
from hf_decentral.topology.spectrum import spectrum


def alone(workers: int) -> tuple[int, ...]:
    return tuple(range(workers))


def built(name: str, workers: int):
    return topologies.build(name, workers), alone(workers)


@pytest.mark.parametrize("workers", [8, 16, 32])
def test_of_a_ring_it_is_the_sum_over_its_eigenvalues(workers):
    topology, hosts = built("ring", workers)
    others = torch.linalg.eigvalsh(topology(0).matrix())[:-1]
    expected = math.sqrt(float((1 / (1 - others) ** 2).mean()))
    assert apart(topology, hosts) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("every", [1, 4, 8])
def test_of_an_exact_mean_it_is_the_steps_from_one_to_the_next(every):
    topology, hosts = built(f"every({every}, complete)", 8)
    assert apart(topology, hosts) == pytest.approx(every)


def test_what_a_codec_leaves_adds_up():
    """With ``left`` of each difference outliving a mean of all, ``D = left D + d``."""
    topology, hosts = built("complete", 8)
    assert apart(topology, hosts, 0.5) == pytest.approx(2, rel=0.01)


def test_marks():
    assert mark(*built("complete", 16)) == ""
    assert mark(*built("aer", 16)) == ""
    assert mark(*built("base_graph", 64)) == ""
    assert mark(*built("ring", 16)) == ""
    assert mark(*built("ring", 32)).startswith("mixes slowly")
    assert mark(*built("every(16, complete)", 4)).startswith("mixes slowly")
    assert mark(*built("complete", 8), 0.01) == ""
    assert mark(*built("complete", 8), 0.95).startswith("lossy")
    assert mark(*built("complete", 1)) == ""


def test_many_workers_are_drawn_and_stay_near_the_exact_value():
    exact, _ = apart(*built("base_graph", 64)), None
    assert apart(*built("base_graph", 256)) == pytest.approx(exact, rel=0.2)
    assert apart(*built("ring", 512)) > MOST_APART


@pytest.mark.parametrize("name", ["ring", "every(4, ring)", "torus", "random_matching", "aer"])
def test_the_gap_is_that_of_a_step(name):
    topology, hosts = built(name, 9 if name == "torus" else 8)
    found, numbers = mixing(topology, hosts), spectrum(topology)
    if topology.period is None:
        assert found.gap is None
    elif numbers.exact:
        assert (found.gap, found.rounds) == (1.0, numbers.exact)
    else:
        assert 1 - found.gap == pytest.approx(numbers.second_eigenvalue ** (1 / topology.period), rel=1e-6)


def test_of_a_large_ring_rounds_come_from_its_eigenvalues():
    found = mixing(*built("ring", 1000))
    assert found.rounds == 813_762
    assert found.gap == pytest.approx(1 - 10 ** (-6 / 813_762), rel=1e-6)


def test_hosts_tell_one_topology_from_another():
    pairs = (0, 0, 1, 1)
    first, second = topologies.build("aer", 4), topologies.build("aer", 4, pairs)
    assert mixing(first, alone(4)).rounds == 4
    assert mixing(second, pairs).rounds == 2
    assert apart(first, alone(4)) > apart(second, pairs)


def test_the_simulator_finds_the_same_order():
    """The consensus distance of a run on unequal data, a logistic regression, lies in the order predicted. It
    is taken at the end of a step before an average."""
    names = ["complete", "base_graph", "every(8, complete)", "ring", "every(64, complete)"]
    predicted = [apart(*built(name, 32)) for name in names]
    found = [
        simulate("logistic", "dpsgd", name, workers=32, steps=183, skew=0.1, seed=0, lr=0.1, order="awc")
        .points[-1]
        .consensus_distance
        for name in names
    ]
    assert predicted == sorted(predicted)
    assert found == sorted(found)
