"""A measured cluster: written and read again, refused where broken, and stretched."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_decentral import topology
from hf_decentral.cluster.iteration import Method, timing
from hf_decentral.cluster.laws import Cluster, law
from hf_decentral.cluster.measured import EVEN, Coding, Measured, Work, read, write
from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors import SettingsError

seconds = st.floats(0, 1e4)
above = st.floats(1e-6, 1e6)
rates = st.one_of(st.just("none"), st.integers(1, 900).map("{}mbit".format), st.just("1.5gbit"))
laws = st.sampled_from(["0.1", "gaussian(0.1, 0.01)", "lognormal(0.1, 0.3)", "empirical(0.1, 0.2, 0.9)"])


@st.composite
def pieces(draw: Any) -> tuple[tuple[float, float], ...]:
    parts = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=20))
    times = sorted(draw(st.lists(st.floats(0, 1), min_size=len(parts), max_size=len(parts))))
    return tuple((time, part / sum(parts)) for time, part in zip(times, parts, strict=True))


@st.composite
def clusters(draw: Any) -> Measured:
    workers = draw(st.integers(1, 9))
    cluster = Cluster(
        draw(laws),
        draw(st.dictionaries(st.integers(0, workers - 1), above, max_size=3)),
        draw(rates),
        draw(seconds),
        draw(st.none() | st.lists(st.integers(0, 3), min_size=workers, max_size=workers).map(tuple)),
        draw(rates),
        draw(seconds),
        draw(st.booleans()),
        collective=draw(above),
        crowding=draw(above),
        correlation=draw(st.floats(0, 1)),
    )
    codings = st.dictionaries(st.text(max_size=9), st.builds(Coding, above, seconds, seconds), max_size=3)
    handled = [draw(seconds) for _ in range(4)]
    work = Work(draw(above), draw(st.floats(0, 0.99)), *handled, draw(pieces()), draw(codings))
    about = draw(st.dictionaries(st.text(max_size=9), st.text(max_size=9) | st.lists(seconds, max_size=3)))
    spread = draw(st.dictionaries(st.sampled_from(["compute", "link", "inside"]), st.floats(0, 2)))
    return Measured(workers, cluster, work, draw(st.text(max_size=20)), spread, about)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(measured=clusters())
def test_what_is_written_is_read(measured: Measured, tmp_path: Path):
    path = tmp_path / "cluster.json"
    write(path, measured)
    assert read(path) == measured
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


KNOWN = Measured(
    4,
    Cluster("gaussian(0.1, 0.01)", {1: 2.0}, "1gbit", 0.001, (0, 0, 1, 1), "10gbit", 0.0001, correlation=0.5),
    Work(4e6, 0.25, 0.01, 0.002, codings={"int8": Coding(0.27, 0.001, 0.002)}),
    "a model",
    {"compute": 0.02},
)


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    write(tmp_path / "cluster.json", KNOWN)
    return json.loads((tmp_path / "cluster.json").read_text(encoding="utf-8"))


def remove(content: dict[str, Any], *keys: str) -> None:
    for key in keys[:-1]:
        content = content[key]
    del content[keys[-1]]


BROKEN = {
    "no version": lambda c: remove(c, "version"),
    "another version": lambda c: c.update(version=2),
    "no cluster": lambda c: remove(c, "cluster"),
    "no work": lambda c: remove(c, "work"),
    "no workers": lambda c: remove(c, "workers"),
    "no pieces": lambda c: remove(c, "work", "pieces"),
    "something more": lambda c: c.update(colour="red"),
    "something more of the cluster": lambda c: c["cluster"].update(colour="red"),
    "workers as text": lambda c: c.update(workers="four"),
    "half a worker": lambda c: (c.update(workers=4.5), c["cluster"].update(hosts=None)),
    "hosts of others": lambda c: c["cluster"].update(hosts=[0, 1]),
    "hosts that are no list": lambda c: c["cluster"].update(hosts=3),
    "a straggler that is not there": lambda c: c["cluster"].update(slow={"4": 2.0}),
    "a straggler without a number": lambda c: c["cluster"].update(slow={"first": 2.0}),
    "bytes for bits": lambda c: c["cluster"].update(link="25GB/s"),
    "a rate as a number": lambda c: c["cluster"].update(link=25e9),
    "a law of nothing": lambda c: c["cluster"].update(compute="soon"),
    "a latency below 0": lambda c: c["cluster"].update(latency=-1.0),
    "a latency as text": lambda c: c["cluster"].update(latency="1 ms"),
    "no bytes": lambda c: c["work"].update(parameter_bytes=0),
    "pieces that are more than all": lambda c: c["work"].update(pieces=[[0.5, 0.5], [1.0, 0.6]]),
    "pieces in no order": lambda c: c["work"].update(pieces=[[1.0, 0.5], [0.5, 0.5]]),
    "a piece that is no number": lambda c: c["work"].update(pieces=[[1.0, math.nan]]),
    "a piece before the others": lambda c: c["work"].update(pieces=[[-0.5, 0.5], [1.0, 0.5]]),
    "a piece below 0": lambda c: c["work"].update(pieces=[[0.5, -0.5], [1.0, 1.5]]),
    "a piece without a time": lambda c: c["work"].update(pieces=[[0.5]]),
    "a coding without a size": lambda c: c["work"].update(codings={"int8": {}}),
    "a coding below 0": lambda c: c["work"].update(codings={"int8": {"payload": -1.0}}),
    "a list in the place of codings": lambda c: c["work"].update(codings=[1]),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_file_is_refused_by_its_name(broken: str, content: dict[str, Any], tmp_path: Path):
    BROKEN[broken](content)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"broken\.json") as told:
        read(path)
    assert "calibrate" in str(told.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"version": 1}', b"\xff\xfe"])
def test_what_is_no_such_file_is_refused(text: str | bytes, tmp_path: Path):
    path = tmp_path / "cluster.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SettingsError, match=r"cluster\.json"):
        read(path)
    with pytest.raises(SettingsError, match=r"other\.json"):
        read(tmp_path / "other.json")


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameter_bytes": 0.0},
        {"parameter_bytes": math.inf},
        {"forward_share": 1.0},
        {"local_seconds": -1.0},
        {"combine_seconds": math.nan},
        {"pieces": ()},
        {"pieces": ((1.5, 1.0),)},
    ],
)
def test_work_that_cannot_be(wrong: dict[str, Any]):
    with pytest.raises(SettingsError):
        Work(**{"parameter_bytes": 1.0, **wrong})


def test_nobody_is_no_cluster():
    with pytest.raises(SettingsError, match="workers"):
        Measured(0, Cluster(), Work(1.0))


def test_hosts_are_named_or_one_each():
    assert Measured(3, Cluster(), Work(1.0)).hosts == (0, 1, 2)
    assert KNOWN.hosts == (0, 0, 1, 1)
    assert sum(share for _, share in EVEN) == pytest.approx(1) and EVEN[-1][0] == 1


@pytest.mark.parametrize("text", ["0.1", "gaussian(0.1, 0.01)", "lognormal(0.1, 0.5)", "empirical(0.1, 0.5)"])
def test_a_cluster_twice_as_slow_takes_twice_as_long(text: str):
    """Where local work is none: the same draws, stretched."""
    measured = Measured(4, Cluster(text, {}, "1gbit", 1e-3, (0, 0, 1, 1), "10gbit", 1e-4), Work(1e7))
    slow = measured.stretched(compute=2, wire=2)
    assert slow.cluster.law.mean == pytest.approx(2 * law(text).mean)
    assert bits_per_second(slow.cluster.link) == pytest.approx(0.5e9)
    for method in (Method(), Method(topology.build("aer", 4, measured.hosts), bucket_bytes=4e6, behind=True)):
        times = [timing(each, method).step_seconds for each in (measured, slow)]
        assert times[1] == pytest.approx(2 * times[0], rel=1e-6)


def test_stretching_by_nothing_changes_no_time_and_no_link_stays_none():
    measured = Measured(2, Cluster("0.1"), Work(1e6))
    assert measured.stretched() == Measured(2, Cluster("constant(0.1)"), Work(1e6))
    assert measured.stretched(wire=3).cluster.link == "none"
