"""Links between real processes."""

from __future__ import annotations

import os
import time

import pytest

from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.lines import Row
from hf_decentral.cluster.probe import FEWEST_REPEATS, FEWEST_SIZES, Probed, collective, naming, probe
from hf_decentral.errors import SettingsError
from tests.processes import outcomes, run

LARGEST = 400_000


def probed(rank: int, hosts: tuple[int, ...], seconds: float) -> tuple[Probed, list[str], float]:
    told: list[str] = []
    began = time.perf_counter()
    found = probe(hosts, largest_bytes=LARGEST, seconds=seconds, progress=told.append)
    return found, told, time.perf_counter() - began


@pytest.mark.parametrize("hosts", [(0, 1, 2), (0, 0, 1, 1)])
def test_all_workers_find_the_same(hosts: tuple[int, ...]):
    every = run(len(hosts), probed, hosts, 2.0)
    found, told, seconds = every[0]
    assert all(each[:2] == (found, told) for each in every)
    assert seconds < 20
    assert found.hosts == hosts and found.backend == "gloo"
    assert found.between is not None and len(found.between.rates) == len(set(hosts))
    assert min(found.between.rates) > 0 and found.between.latency >= 0
    assert found.between.rows[-1].bytes == LARGEST
    assert (found.inside is None) == (len(set(hosts)) == len(hosts))
    assert found.collective > 0 and [each.bytes for each in found.reduced][-1] == LARGEST
    for each in (*found.between.rows, *found.reduced):
        assert 0 < each.low <= each.seconds <= each.high and each.repeats >= FEWEST_REPEATS
    assert found.cluster.hosts == hosts and found.cluster.link.endswith("mbit")
    assert {"links between hosts", "one way", "two on a link", "all-reduce"} <= set(told)
    assert found.crowding >= 1 and found.cluster.crowding == found.crowding


def test_one_host_has_links_inside_and_little_time_is_kept_to():
    found, _, _ = run(2, probed, (3, 3), 0.01)[0]
    assert found.between is None and found.inside is not None and not found.half_duplex
    assert len(found.inside.rows) >= FEWEST_SIZES
    assert found.cluster.link == "none" and found.cluster.inside != "none"


def test_one_worker_has_no_links_and_needs_no_group():
    assert probe([0], largest_bytes=LARGEST, seconds=1.0) == Probed((0,))


def leave(rank: int) -> str:
    told: list[str] = []

    def progress(what: str) -> None:
        told.append(what)
        if rank == 1 and len(told) == 2:
            os._exit(3)

    try:
        probe((0, 1, 2), largest_bytes=LARGEST, seconds=2.0, progress=progress)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_killed_worker_is_named():
    first, _, last = outcomes(3, leave)
    for each in (first, last):
        assert each.value.startswith("PeerLost: Worker 1 did not answer"), each


def wrong_hosts(rank: int) -> str:
    with pytest.raises(SettingsError) as caught:
        probe((0, 1, 2), largest_bytes=LARGEST, seconds=1.0)
    with pytest.raises(RuntimeError, match="of the user"), naming():
        raise RuntimeError("of the user")
    return str(caught.value)


def test_hosts_of_other_workers_are_refused():
    assert all("2 numbers" in told for told in run(2, wrong_hosts))


def test_the_factor_of_an_all_reduce():
    cluster = Cluster(link="80mbit", latency=1e-3, hosts=(0, 1, 2, 3))
    # 6 phases of a millisecond and of a quarter of the bytes at 10 MB/s, twice as long as that.
    rows = [Row(size, 6 * (1e-3 + 2 * size / 4 / 1e7), 0, 0, 3) for size in (1000, 10**6, 10**7)]
    assert collective(cluster, 4, rows) == pytest.approx(2.0)
    assert collective(cluster, 4, rows[:1]) > 0
    assert collective(cluster, 4, []) == 1.0
