"""``simulate``: what it measures, what it takes and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from hf_decentral import algorithms, simulate
from hf_decentral.cluster import Cluster
from hf_decentral.errors import SettingsError
from hf_decentral.simulator import Problem, problems


def small(**settings: object) -> Problem:
    return problems.build("quadratic", 8, samples=80, **settings)


def test_a_run_tells_what_it_was_and_where_it_stood():
    given = small()
    told: list[int] = []
    run = simulate(given, "dpsgd", "ring", 8, steps=10, record=4, progress=told.append)
    assert [point.step for point in run.points] == [0, 4, 8, 10]
    assert told == list(range(1, 11))
    assert (run.problem, run.algorithm, run.topology, run.workers) == ("quadratic", "dpsgd", "ring", 8)
    assert (run.lr, run.averaging, run.skew, run.seed, run.steps) == (0.1, "plain", None, 0, 10)
    assert run.step_seconds > 0
    with torch.no_grad():
        start = float(given.loss(given.model(given.valid[0]), given.valid[1]))
    first, last = run.points[0], run.points[-1]
    assert first.loss == pytest.approx(start, rel=1e-5)
    assert (first.consensus_distance, first.sent_bytes, first.accuracy, first.seconds) == (0, 0, None, None)
    assert run.loss == last.loss < first.loss
    assert run.consensus_distance == last.consensus_distance > 0
    assert run.sent_bytes == last.sent_bytes > 0


def test_a_run_is_plain_numbers_for_json():
    run = simulate(small(), "dadam", "ring", 4, steps=6)
    told = json.loads(json.dumps(run.as_dict()))
    names = {"algorithm", "topology", "workers", "step_seconds", "loss", "consensus_distance", "sent_bytes"}
    assert names < set(told)
    assert len(told["points"]) == len(run.points) == 7
    assert told["points"][-1]["loss"] == told["loss"] == run.loss


def test_the_same_seed_is_the_same_run_and_another_one_is_not():
    one, same = (simulate(small(), "accumadam", "aer", 4, steps=5, seed=3) for _ in range(2))
    assert one.points == same.points
    assert simulate(small(), "accumadam", "aer", 4, steps=5, seed=4).points != one.points


def test_settings_stand_in_the_place_of_the_algorithms_own():
    base = {"steps": 8, "record": 8}
    run = simulate(small(), "local_sgd", "ring", 4, **base)
    often = simulate(small(), "local_sgd", "ring", 4, **base, period=1)
    assert often.sent_bytes == 4 * run.sent_bytes
    assert simulate(small(), "dpsgd", "ring", 4, **base, lr=0.01).lr == 0.01
    coded = simulate(small(), "dpsgd", "ring", 4, **base, averaging="int8")
    assert coded.averaging == "int8"
    atc, awc = (simulate(small(), "dpsgd", "ring", 4, **base, order=order) for order in ("atc", "awc"))
    assert atc.loss != awc.loss
    more = simulate(small(), "dpsgd", "ring", 4, **base, batch=20)
    assert more.points[-1].train_loss != atc.points[-1].train_loss


def test_ones_own_algorithm_and_model():
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 3, generator=draw)
    data = inputs, inputs.sum(1, keepdim=True).tanh()
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    mine = Problem("mine", model, nn.functional.mse_loss, data, data, batch=5)
    own = replace(algorithms.build("dpsgd"), summary="mine too", settings={"momentum": 0.9}, lr=0.05)
    run = simulate(mine, own, "ring", 6, steps=40, skew=0.5)
    assert (run.problem, run.algorithm) == ("mine", "mine too")
    assert run.loss < 0.2 * run.points[0].loss


def test_a_known_algorithm_with_other_numbers_keeps_its_name():
    assert (
        simulate(small(), replace(algorithms.build("dadam"), lr=0.5), workers=2, steps=1).algorithm == "dadam"
    )


def test_skewed_shards_pull_the_workers_apart():
    found = [simulate(small(), "dpsgd", "ring", 8, steps=60, skew=skew) for skew in (None, 0.05)]
    assert found[1].consensus_distance > 1.5 * found[0].consensus_distance


@pytest.mark.parametrize("name", sorted(set(algorithms.names())))
def test_every_algorithm_learns(name: str):
    run = simulate(problems.build("logistic", 12, separation=4.0), name, "ring", 4, steps=40, batch=8)
    assert run.loss < 0.97 * run.points[0].loss
    assert run.sent_bytes > 0


def test_virtual_time_is_told():
    run = simulate(small(), "dpsgd", "ring", 4, steps=5, record=1, cluster=Cluster("constant(2)"))
    seconds = [point.seconds for point in run.points]
    assert seconds == sorted(seconds)
    assert seconds[-1] >= 10


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"workers": 0}, "workers=0"),
        ({"steps": 0}, "steps=0"),
        ({"steps": 2.5}, "steps=2.5"),
        ({"record": 0}, "record=0"),
        ({"batch": 0}, "batch=0"),
        ({"seed": -1}, "seed=-1"),
        ({"skew": 0.0}, r"skew=0\.0"),
        ({"nan": "ignore"}, "Known are skip, stop"),
        ({"workers": 81}, "80 workers at most"),
        ({"topology": "rign"}, "mean 'ring'"),
        ({"algorithm": "dadm"}, "mean 'dadam'"),
        ({"averaging": "int9"}, "int8"),
        ({"order": "abc"}, "awc"),
    ],
)
def test_what_cannot_be_meant(wrong: dict[str, object], told: str):
    with pytest.raises(SettingsError, match=told):
        simulate(small(), **{"algorithm": "dpsgd", "steps": 3, **wrong})


def test_a_problem_may_be_named():
    assert simulate("quadratic", "dpsgd", workers=2, steps=1, seed=5).problem == "quadratic"
    with pytest.raises(SettingsError, match="mean 'logistic'"):
        simulate("logistc")


def test_where_all_curvatures_are_equal_the_mean_does_not_depend_on_who_meets_whom():
    """The mean gradient is then the gradient at the mean, which no doubly stochastic round changes."""
    given = small(unequal=1.0, dtype=torch.float64)
    losses = [
        simulate(given, "dpsgd", name, 8, steps=20, skew=0.1).loss for name in ("ring", "complete", "aer")
    ]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-12)
