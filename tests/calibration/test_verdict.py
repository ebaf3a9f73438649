"""Whether repeats agree, on numbers that do and that do not."""

from __future__ import annotations

import pytest

from hf_decentral.calibration.verdict import Load, disturbances, odd_hosts
from hf_decentral.cluster.describe import describe
from hf_decentral.cluster.lines import Line
from hf_decentral.cluster.probe import Probed
from hf_decentral.cluster.stopwatch import Steps

QUIET = [Load(0.1)] * 2


def worker(*seconds: float) -> Steps:
    return Steps(seconds, (0.001,) * len(seconds), 0.3, ((1.0, 4_000_000),), 4_000_000)


def link(spread: float, rates: tuple[float, ...] = (2e8, 2e8)) -> Line:
    return Line(min(rates), 1e-3, spread, rates, ())


def told(steps: list[Steps], probed: Probed, loads: list[Load] = QUIET) -> list[str]:
    return disturbances(steps, probed, describe(steps, probed), loads)


STEADY = worker(*(0.1, 0.101, 0.102, 0.103) * 5)
UNSTEADY = worker(*(0.1, 0.12, 0.14, 0.2) * 5)


def test_a_steady_run_is_undisturbed():
    assert told([STEADY, STEADY], Probed((0, 1), link(0.1))) == []


def test_an_unsteady_worker_is_named_and_the_load_of_its_host_where_it_is_high():
    (found,) = told([STEADY, UNSTEADY], Probed((0, 1), link(0.1)))
    assert (
        found.startswith("worker 1 took 100 ms to 200 ms")
        and "load" not in found
        and "processes" not in found
    )
    (found,) = told([STEADY, UNSTEADY], Probed((0, 1), link(0.1)), [Load(0.0), Load(2.5)])
    assert "its host had 2.5 processes a core to run" in found
    # One slow step of twenty is no spread: it is a part of the law.
    assert told([STEADY, worker(*(0.1,) * 19, 0.5)], Probed((0, 1), link(0.1))) == []


def test_an_unsteady_link_is_named_with_the_host_that_is_odd():
    (found,) = told([STEADY, STEADY], Probed((0, 1), link(0.5)))
    assert "links between hosts" in found and "50%" in found and "host 1" not in found
    (found,) = told([STEADY] * 3, Probed((0, 1, 2), link(0.5, (2e8, 5e7, 2e8))), [Load(0.1)] * 3)
    assert "host 1 has 25% of the others' rate" in found


def test_a_link_that_takes_next_to_no_time_may_be_unsteady():
    assert told([STEADY, STEADY], Probed((0, 1), link(0.5, (1e12, 1e12)))) == []


@pytest.mark.parametrize(
    ("rates", "odd"),
    [
        ((2e8, 2e8), {}),
        ((2e8, 1.7e8, 2e8), {}),
        ((2e8, 1e8, 2e8), {1: 0.5}),
        ((0.0, 2e8, 2e8), {}),
        ((0.0, 0.0, 2e8), {}),
        ((0.0, 0.0, 2e8, 2e8, 1e8), {4: 0.5}),
    ],
)
def test_odd_hosts(rates: tuple[float, ...], odd: dict[int, float]):
    assert odd_hosts(link(0.0, rates)) == odd


def test_the_load_of_this_machine_is_a_number():
    assert Load.now().share >= 0
