"""Compute times: their distributions, and that they are functions of seed, step and worker."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hf_decentral.cluster.draws import Purpose, uniform, uniforms
from hf_decentral.cluster.laws import Cluster, Law, kinds, law
from hf_decentral.errors import SettingsError

LAWS = ["0.1", "constant(0.1)", "gaussian(0.1, 0.02)", "exponential(0.05, 0.05)", "lognormal(0.1, 0.3)"]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0.1", Law("constant", (0.1,))),
        (" 2 ", Law("constant", (2.0,))),
        ("1e-3", Law("constant", (0.001,))),
        ("gaussian(0.1,0.02)", Law("gaussian", (0.1, 0.02))),
        ("exponential( 0.05 , .05 )", Law("exponential", (0.05, 0.05))),
        ("exponential(0, 1)", Law("exponential", (0.0, 1.0))),
        ("lognormal(0.1, 0)", Law("lognormal", (0.1, 0.0))),
    ],
)
def test_a_law_is_a_number_or_a_name_with_numbers(text: str, read: Law):
    assert law(text) == read


@pytest.mark.parametrize(
    "text", ["", "fast", "-1", "gaussian", "gaussian()", "nan", "inf", "0.1s", "0.1, 0.2"]
)
def test_what_is_no_law_is_told_what_one_looks_like(text: str):
    with pytest.raises(SettingsError) as told:
        law(text)
    assert all(written in str(told.value) for written in kinds())


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "constant(1, 2)",
        "gaussian(0.1)",
        "gaussian(0.1, 0.2)",
        "exponential(0, 0)",
        "lognormal(0, 1)",
        "1e999",
        "lognormal(1, 50)",
    ],
)
def test_numbers_that_are_no_times_are_refused(text: str):
    with pytest.raises(SettingsError, match="takes"):
        law(text)


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(SettingsError, match="'lognormal'"):
        law("lognorm(1, 2)")


@pytest.mark.parametrize("text", LAWS)
def test_the_mean_of_many_draws_is_the_mean(text: str):
    times = np.concatenate([Cluster(text).seconds(1000, step) for step in range(200)])
    assert (times > 0).all()
    # Five standard errors.
    assert abs(times.mean() - law(text).mean) <= 5 * times.std() / math.sqrt(len(times)) + 1e-12


def test_the_spread_of_many_draws_is_the_one_that_was_written():
    def drawn(text: str) -> np.ndarray:
        return np.concatenate([Cluster(text).seconds(1000, step) for step in range(200)])

    assert drawn("gaussian(0.1, 0.02)").std() == pytest.approx(0.02, rel=0.01)
    assert np.log(drawn("lognormal(0.1, 0.3)")).std() == pytest.approx(0.3, rel=0.01)
    assert np.median(drawn("lognormal(0.1, 0.3)")) == pytest.approx(0.1, rel=0.01)
    exponential = drawn("exponential(0.05, 0.02)")
    assert exponential.min() >= 0.05 and exponential.std() == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("text", LAWS)
def test_a_draw_depends_on_seed_step_and_worker_alone(text: str):
    cluster = Cluster(text, slow={3: 2.0})
    few, many = cluster.seconds(7, 11, seed=5), cluster.seconds(1000, 11, seed=5)
    assert (few == many[:7]).all()
    assert [cluster.seconds_of(i, 11, seed=5) for i in range(40)] == many[:40].tolist()


def test_other_seeds_steps_and_purposes_are_other_numbers():
    one = uniforms(0, 0, 50, Purpose.COMPUTE)
    for other in (
        uniforms(1, 0, 50, Purpose.COMPUTE),
        uniforms(0, 1, 50, Purpose.COMPUTE),
        uniforms(0, 0, 50, Purpose.PARTNER),
    ):
        assert not np.intersect1d(one, other).size
    assert 0 < uniform(-1, 0, 0, Purpose.COMPUTE) < 1  # any whole number may be a seed


def test_a_straggler_is_slow_by_its_factor():
    plain, slow = Cluster("exponential(1, 1)"), Cluster("exponential(1, 1)", slow={2: 3.0})
    assert (slow.seconds(4, 9) == plain.seconds(4, 9) * [1, 1, 3, 1]).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"latency": -1.0},
        {"inside_latency": math.nan},
        {"slow": {0: 0.0}},
        {"slow": {-1: 2.0}},
        {"link": "fast"},
        {"inside": "10"},
        {"compute": "soon"},
    ],
)
def test_a_cluster_that_cannot_be_meant(wrong: dict):
    with pytest.raises(SettingsError):
        Cluster(**wrong)


@pytest.mark.parametrize("wrong", [{"slow": {4: 2.0}}, {"hosts": (0, 0, 1)}])
def test_a_cluster_of_other_workers(wrong: dict):
    with pytest.raises(SettingsError, match="worker"):
        Cluster(**wrong).check(4)
