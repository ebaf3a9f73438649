"""From what workers measured to a cluster: pure functions with known answers."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from hf_decentral.cluster.describe import (
    MOST_PIECES,
    correlation,
    describe,
    forward_share,
    pieces,
    settled,
    slow_workers,
)
from hf_decentral.cluster.handling import Handling
from hf_decentral.cluster.iteration import Method, timing
from hf_decentral.cluster.lines import Line, Row
from hf_decentral.cluster.measured import EVEN, Coding, read, write
from hf_decentral.cluster.probe import Probed
from hf_decentral.cluster.stopwatch import Steps

READY = ((1.0, 100), (0.8, 300), (0.6, 100))
RNG = np.random.default_rng(7)


def steps(seconds: float, jitter: float = 0.01, count: int = 60, ready=READY) -> Steps:
    times = seconds * (1 + jitter * RNG.standard_normal(count))
    return Steps(tuple(times), (0.01,) * count, 0.4, ready, sum(size for _, size in ready))


def links(rate: float = 2e8) -> Line:
    return Line(rate, 1e-3, 0.1, (rate, rate), (Row(1000, 1.0, 0.9, 1.1, 5),))


def test_everything_lands_in_its_place(tmp_path: Path):
    probed = Probed((0, 0, 1, 1), links(), links(8e9), True, 1.5, (Row(10, 1.0, 1.0, 1.0, 3),), "gloo")
    codings = [Handling(0.1 * k, {"bf16": Coding(0.5, 0.01 * k, 0.02 * k)}) for k in (1, 2, 3, 6)]
    workers = [steps(0.1), steps(0.1), steps(0.13), steps(0.1)]
    found = describe(workers, probed, codings, model="tiny", about={"device": "cpu"})
    assert found.workers == 4 and found.hosts == (0, 0, 1, 1) and found.model == "tiny"
    cluster, work = found.cluster, found.work
    assert cluster.law.mean == pytest.approx(0.1, rel=0.01)
    assert set(cluster.slow) == {2} and cluster.slow[2] == pytest.approx(1.3, rel=0.02)
    assert (cluster.link, cluster.inside) == ("200.000000mbit", "8000.000000mbit")
    assert cluster.latency == cluster.inside_latency == 1e-3
    assert cluster.half_duplex and cluster.collective == 1.5 and cluster.correlation == 0.0
    assert work.parameter_bytes == 500 and work.forward_share == 0.4 and work.local_seconds == 0.01
    assert work.combine_seconds == pytest.approx(0.25)
    assert set(work.codings) == {"bf16"}
    assert astuple(work.codings["bf16"]) == pytest.approx((0.5, 0.025, 0.05))
    assert work.pieces == (
        (pytest.approx(1 / 3), 0.2),
        (pytest.approx(2 / 3), 0.6),
        (1.0, 0.2),
    )
    assert found.uncertainty.keys() == {"compute", "link", "inside"}
    assert found.uncertainty["link"] == 0.05 and found.uncertainty["compute"] < 0.01
    assert found.about["device"] == "cpu" and found.about["messages"]["all-reduce"][0]["bytes"] == 10
    write(tmp_path / "cluster.json", found)
    again = read(tmp_path / "cluster.json")
    assert again == found
    assert timing(again, Method()).step_seconds > 0.13


def test_one_worker_and_no_handling():
    found = describe([steps(0.1)], Probed((0,)))
    assert found.cluster.link == found.cluster.inside == "none" and found.cluster.slow == {}
    assert found.work.combine_seconds == 0 and not found.work.codings
    assert found.uncertainty.keys() == {"compute"}


def times(*seconds: float, jitter: float, count: int = 50) -> list[tuple[float, ...]]:
    return [steps(each, jitter, count).compute_seconds for each in seconds]


def test_of_two_workers_the_faster_one_is_usual():
    assert set(slow_workers(times(0.2, 0.1, jitter=0.01))) == {0}


@pytest.mark.parametrize(
    ("seconds", "jitter"),
    [((0.1, 0.103, 0.1), 0.001), ((0.1, 0.115, 0.1), 0.8)],
    ids=["less than 5 %", "within the noise"],
)
def test_who_is_not_slow(seconds: tuple[float, ...], jitter: float):
    assert slow_workers(times(*seconds, jitter=jitter)) == {}


def test_a_fast_worker_is_not_slow():
    assert slow_workers(times(0.1, 0.05, 0.1, 0.1, jitter=0.01)) == {}


def test_common_luck_is_seen_and_chance_is_not():
    common = RNG.standard_normal(200)
    own = RNG.standard_normal((3, 200))
    shared = 0.1 * np.exp(0.1 * (np.sqrt(0.6) * common + np.sqrt(0.4) * own))
    assert correlation([tuple(each) for each in shared]) == pytest.approx(0.6, abs=0.1)
    assert correlation([tuple(np.exp(each)) for each in own]) == 0.0
    assert correlation([tuple(own[0])]) == 0.0
    assert correlation([(0.1,) * 20, (0.1,) * 20]) == 0.0


def test_how_sure_a_mean_is():
    assert settled([(0.1,) * 20]) == 0.0
    drifting = tuple(np.linspace(0.1, 0.2, 50))
    assert 0.1 < settled([drifting]) < 0.3


def test_small_gradients_are_taken_together_and_none_is_lost():
    ready = tuple((0.4 + 0.6 * (k + 1) / 1000, 4 + k % 3) for k in range(1000))
    found = pieces(ready, 0.4)
    assert 20 < len(found) <= MOST_PIECES
    assert sum(share for _, share in found) == pytest.approx(1)
    assert found[-1][0] == pytest.approx(1.0) and [t for t, _ in found] == sorted(t for t, _ in found)
    assert pieces((), 0.3) == EVEN


def test_forward_where_nothing_told():
    blind = Steps((0.1,), (0.0,), None, ((0.5, 8), (0.2, 8)), 16)
    assert forward_share([blind]) == 0.2  # no gradient comes before backward
    assert forward_share([Steps((0.1,), (0.0,), None, ((0.9, 8),), 8)]) == pytest.approx(1 / 3)
    assert forward_share([steps(0.1)]) == 0.4
