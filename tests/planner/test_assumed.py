"""Clusters from plain figures, and others than were measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hf_decentral.cluster.laws import law
from hf_decentral.errors import SettingsError
from hf_decentral.planner.assumed import UNCERTAINTY, Figures, assumed, instead, per_host, spread
from tests.planner.clusters import CODINGS, GPT2, cluster

FIGURES = Figures(GPT2, hosts=4, workers_per_host=4, link="25gbit", step_seconds=0.245)


def test_a_step_keeps_its_length():
    made = assumed(FIGURES, "gpt2")
    step = made.cluster.law.mean + made.work.local_seconds
    assert step == pytest.approx(0.245)
    assert made.work.local_seconds == pytest.approx(7 * GPT2 / 600e9)
    assert made.work.combine_seconds == pytest.approx(3 * GPT2 / 600e9)
    assert made.workers == 16 and per_host(made) == [4] * 4
    assert made.uncertainty == UNCERTAINTY
    assert (made.cluster.latency, made.cluster.inside_latency) == (30e-6, 5e-6)


def test_an_optimizer_takes_a_fifth_at_most():
    made = assumed(replace(FIGURES, step_seconds=0.01))
    assert made.work.local_seconds == pytest.approx(0.002)


@pytest.mark.parametrize("cv", [0.0, 0.05, 0.5, 2.0])
def test_spread(cv):
    made = law(spread(0.2, cv))
    times = made.at((np.arange(200_000) + 0.5) / 200_000)
    assert made.mean == pytest.approx(0.2)
    assert times.std() == pytest.approx(0.2 * cv, rel=0.05, abs=1e-12)


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"parameter_bytes": None}, "--params"),
        ({"step_seconds": None}, "--step-ms"),
        ({"link": None}, "--link"),
    ],
)
def test_what_is_needed_is_asked_for(changes, lacks):
    with pytest.raises(SettingsError, match=lacks):
        assumed(replace(FIGURES, **changes))


def test_one_worker_needs_no_link():
    assert assumed(Figures(GPT2, step_seconds=0.245)).workers == 1


@pytest.mark.parametrize("changes", [{"hosts": 0}, {"workers_per_host": -1}, {"hosts": 5000}])
def test_numbers_that_cannot_be_meant(changes):
    with pytest.raises(SettingsError):
        assumed(replace(FIGURES, **changes))


def test_nothing_instead_is_what_was_measured():
    measured = cluster(hosts=2, each=2, codings=CODINGS)
    same, notes = instead(measured, Figures())
    assert same == replace(measured, cluster=replace(measured.cluster, compute="constant(0.246)"))
    assert notes == []


def test_more_hosts_are_extrapolated_and_said_to_be():
    measured = cluster(hosts=2, each=2, slow={3: 2.0})
    more, notes = instead(measured, Figures(hosts=8))
    assert more.workers == 16 and per_host(more) == [2] * 8
    assert more.cluster.slow == {3: 2.0}
    assert "2 x 2 workers were measured" in notes[0] and "8 x 2 are extrapolated" in notes[0]
    assert more.uncertainty["link"] == UNCERTAINTY["link"]
    assert more.uncertainty["compute"] == measured.uncertainty["compute"]


def test_fewer_workers_lose_the_slow_one():
    less, notes = instead(cluster(hosts=4, slow={3: 2.0}), Figures(hosts=2))
    assert less.cluster.slow == {}
    assert "[3]" in notes[1]


def test_links_that_were_not_measured_are_asked_for():
    with pytest.raises(SettingsError, match="--link"):
        instead(cluster(hosts=1, each=4), Figures(hosts=2))
    with pytest.raises(SettingsError, match="--intra-link"):
        instead(cluster(hosts=4), Figures(workers_per_host=2))
    more, _ = instead(cluster(hosts=4), Figures(workers_per_host=2, intra_link="160gbit"))
    assert more.cluster.inside == "160gbit"


def test_uneven_hosts_must_be_laid_out_anew():
    uneven = replace(cluster(hosts=3), cluster=replace(cluster(hosts=3).cluster, hosts=(0, 0, 1)))
    with pytest.raises(SettingsError, match="2,1"):
        instead(uneven, Figures(hosts=4))
    assert instead(uneven, Figures(hosts=4, workers_per_host=1))[0].workers == 4


def test_another_model_needs_its_step():
    measured = cluster(codings=CODINGS)
    with pytest.raises(SettingsError, match="--step-ms"):
        instead(measured, Figures(parameter_bytes=40e6))
    made, _ = instead(measured, Figures(parameter_bytes=40e6, step_seconds=0.5))
    assert made.work.local_seconds == pytest.approx(2 * measured.work.local_seconds)
    assert made.work.codings["int8"].before_seconds == pytest.approx(2 * CODINGS["int8"].before_seconds)
    assert made.work.codings["int8"].payload == CODINGS["int8"].payload
    assert made.cluster.law.mean + made.work.local_seconds == pytest.approx(0.5)
    assert made.uncertainty["compute"] == UNCERTAINTY["compute"]


def test_the_same_model_needs_none():
    made, _ = instead(cluster(), Figures(parameter_bytes=20.1e6))
    assert made.work.parameter_bytes == 20e6


def test_another_spread_keeps_the_mean():
    made, _ = instead(cluster(compute="lognormal(0.2, 0.1)"), Figures(step_cv=0.5))
    assert made.cluster.law.mean == pytest.approx(0.2 * math.exp(0.005))
    constant, _ = instead(cluster(compute="lognormal(0.2, 0.1)"), Figures(step_cv=0.0))
    assert constant.cluster.law.kind == "constant"


def test_links_and_latency_are_replaced():
    made, notes = instead(cluster(), Figures(link="10gbit", latency=1e-3, slow={0: 3.0}))
    assert (made.cluster.link, made.cluster.latency, made.cluster.slow) == ("10gbit", 1e-3, {0: 3.0})
    assert notes == []
