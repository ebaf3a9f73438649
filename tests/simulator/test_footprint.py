"""What does not fit is told before it is allocated, and 64 workers of a million parameters fit in 6 GB."""

from __future__ import annotations

import re
import subprocess
import sys

import psutil
import pytest

from hf_decentral import simulate
from hf_decentral.errors import SettingsError
from hf_decentral.simulator import problems

RUN = """
import resource, sys
from hf_decentral.simulator import problems, footprint
from hf_decentral.simulator.lockstep import Simulation, how, plan_of
from hf_decentral.simulator.setup import Setup, optimizer_of
from hf_decentral import algorithms

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

problem = problems.build("quadratic", int(sys.argv[2]))
setup = Setup(problem, algorithms.build(sys.argv[1]), "ring", 64, 1)
told = footprint.check(problem.model, optimizer_of(setup.algorithm), plan_of(how(setup)))
before = peak()
simulation = Simulation(setup)
for _ in range(2):
    simulation.step()
simulation.distance()
simulation.evaluate()
print(told, peak() - before, peak())
"""


def measured(algorithm: str, dim: int) -> tuple[int, int, int]:
    """Bytes that were told, bytes that it took, bytes of the whole process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, algorithm, str(dim)], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    told, took, whole = map(int, done.stdout.split())
    return told, took, whole


def test_64_workers_of_a_million_parameters_take_what_is_told_and_less_than_6_gb():
    told, took, whole = measured("accumadamw", 1_000_000)
    assert whole < 6e9
    assert 0.6 * told < took < 1.15 * told


def test_what_does_not_fit_is_told_with_what_would():
    dim = 1_000_000
    free = psutil.virtual_memory().available
    workers = max(2, 10 * free // (28 * dim))  # seven times four bytes of each parameter, ten times over
    problem = problems.build("quadratic", dim, samples=workers)
    with pytest.raises(SettingsError) as caught:
        simulate(problem, "dpsgd", "ring", workers, steps=1)
    told = str(caught.value)
    assert f"{workers} workers x 1,000,000 parameters take about" in told
    fitting = re.search(
        r"(\d+) workers of that size would fit, or (\d+) workers of ([\d,]+) parameters", told
    )
    assert fitting is not None
    assert 0.05 * workers < int(fitting[1]) < 0.2 * workers
    assert 0.05 * dim < int(fitting[3].replace(",", "")) < 0.2 * dim
