"""Fitted distributions: recognised, or at least with the mean and the tail of their samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_decentral.cluster.costs import expected_slowest
from hf_decentral.cluster.fits import fit
from hf_decentral.cluster.laws import Cluster, Law, law
from hf_decentral.errors import SettingsError


def drawn(text: str, count: int, step: int = 3) -> np.ndarray:
    """The same samples in every run: they are functions of their numbers."""
    return Cluster(text).seconds(count, step)


def slowest_of(samples: np.ndarray, workers: int) -> float:
    """The mean of the largest of so many that are drawn from the samples, with replacement."""
    ranks = np.arange(len(samples) + 1) / len(samples)
    return float(np.sort(samples) @ np.diff(ranks**workers))


def quantile(found: Law, at: float) -> float:
    return float(found.at(np.array([at]))[0])


# The tail of a hundred samples is off by some 15 % itself.
@pytest.mark.parametrize(("count", "within"), [(100, 0.15), (1000, 0.06), (10_000, 0.06)])
@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("constant(0.1)", {"constant"}),
        ("gaussian(0.1, 0.0001)", {"constant"}),
        ("gaussian(0.1, 0.02)", {"gaussian"}),
        ("lognormal(0.1, 0.3)", {"lognormal"}),
        ("lognormal(0.1, 0.6)", {"lognormal"}),
        ("exponential(0.05, 0.05)", {"lognormal", "empirical"}),
        ("empirical(0.1, 0.1, 0.1, 0.11, 0.3)", {"empirical"}),
    ],
)
def test_each_kind_is_recognised_with_its_tail(text: str, kinds: set[str], count: int, within: float):
    samples = drawn(text, count)
    found = law(fit(samples))
    assert found.kind in kinds
    assert found.mean == pytest.approx(samples.mean(), rel=0.03)
    assert quantile(found, 0.9) == pytest.approx(np.quantile(samples, 0.9), rel=within)
    assert expected_slowest(found, 8) == pytest.approx(slowest_of(samples, 8), rel=within)


def test_many_samples_bring_the_law_that_they_were_drawn_from():
    for text in ("gaussian(0.1, 0.02)", "lognormal(0.1, 0.3)"):
        assert law(fit(drawn(text, 100_000))).numbers == pytest.approx(law(text).numbers, rel=0.01)


@pytest.mark.parametrize("text", ["gaussian(0.1, 0.02)", "lognormal(0.1, 0.5)"])
def test_the_right_kind_is_seldom_rejected(text: str):
    """At 1 %: of 200 sets of samples, more than eight would be a chance of 1 in 4,000 under another seed."""
    rejected = [fit(drawn(text, 100, step)).startswith("empirical") for step in range(200)]
    assert sum(rejected) <= 8


@pytest.mark.parametrize("usual", [np.full(999, 0.1), drawn("gaussian(0.1, 0.01)", 999)])
def test_an_outlier_counts_as_the_one_time_that_it_was(usual: np.ndarray):
    samples = np.append(usual, 1.0)
    found = law(fit(samples))
    assert found.kind == "empirical"
    assert found.mean == pytest.approx(samples.mean(), rel=1e-6)
    assert quantile(found, 0.5) == pytest.approx(np.median(samples), rel=0.01)
    assert expected_slowest(found, 8) == pytest.approx(slowest_of(samples, 8), rel=0.01)


def test_steps_of_two_kinds_keep_both():
    found = law(fit([0.1, 0.1, 0.1, 0.2] * 50))
    assert found.kind == "empirical" and len(found.numbers) == 33
    assert found.mean == pytest.approx(0.125)
    assert (quantile(found, 0.5), quantile(found, 0.9)) == pytest.approx((0.1, 0.2))


def test_few_samples():
    assert fit([2.0]) == "constant(2)"
    assert fit([1.0, 1.001]) == "constant(1.0005)"
    assert law(fit([0.01, 10.0])).mean == pytest.approx(5.005)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60), st.randoms())
def test_whatever_was_measured_has_a_law(samples: list[float], chance):
    text = fit(samples)
    found = law(text)
    shuffled = samples.copy()
    chance.shuffle(shuffled)
    assert fit(shuffled) == text
    if found.kind != "lognormal":
        assert found.mean == pytest.approx(math.fsum(samples) / len(samples), rel=1e-6)
    scaled = law(fit([8 * each for each in samples]))  # a power of two scales without rounding
    assert (scaled.kind, scaled.mean) == (found.kind, pytest.approx(8 * found.mean, rel=1e-6))


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ([], "No measured times"),
        ([0.1, 0.0], r"^0\.0 is among 2"),
        ([-1.0], "-1.0"),
        ([math.nan, 1.0], "Nan"),
    ],
)
def test_what_is_no_time_is_refused(samples: list[float], told: str):
    with pytest.raises(SettingsError, match=told):
        fit(samples)
