"""The flags of ``hf-decentral simulate``, and which runs they stand for."""

from __future__ import annotations

import pytest

from hf_decentral import algorithms
from hf_decentral.cli.simulate_plan import combinations, file_name, identity
from hf_decentral.cli.simulate_settings import Settings
from hf_decentral.errors import SettingsError


def test_lists_are_read_each_value_once():
    settings = Settings(
        algorithms="dadam, dpsgd,dadam", topology="ring,every(8, ring)", workers="8,64,8", skew="iid,0.1"
    )
    assert settings.algorithm_names == ["dadam", "dpsgd"]
    assert settings.topology_names == ["ring", "every(8, ring)"]
    assert settings.worker_counts == [8, 64]
    assert settings.skews == [None, 0.1]
    assert Settings(algorithms="all").algorithm_names == algorithms.names()


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [0, 1, 2]), ("1", [0]), ("4,7", [4, 7]), ("5,", [5]), ("0,0", [0])]
)
def test_seeds_are_a_number_of_them_or_a_list(text: str, seeds: list[int]):
    assert Settings(seeds=text).seed_numbers == seeds


def test_a_rate_for_all_for_some_or_their_own():
    own = algorithms.build("dadam").lr
    assert Settings(algorithms="dpsgd,dadam").lr_of("dadam") == own
    assert Settings(algorithms="dpsgd,dadam", lr="0.5").lr_of("dadam") == 0.5
    some = Settings(algorithms="dpsgd,dadam,muon", lr="0.25,dadam=0.001")
    assert [some.lr_of(name) for name in some.algorithm_names] == [0.25, 0.001, 0.25]
    assert Settings(algorithms="dpsgd,dadam", lr="dpsgd=0.25").lr_of("dadam") == own


def test_a_cluster_stands_where_one_of_its_flags_does():
    assert Settings().cluster is None
    found = Settings(compute="exponential(0.05, 0.05)", bandwidth="1gbit", slow_worker="3=2,5=1.5").cluster
    assert found is not None
    assert (found.law.mean, found.link, found.latency) == (pytest.approx(0.1), "1gbit", 0.0)
    assert found.slow == {3: 2.0, 5: 1.5}
    moving = Settings(deaths="3=100, 5=200", joins="3=300")
    assert (moving.leaving, moving.coming, moving.cluster) == ({3: 100.0, 5: 200.0}, {3: 300.0}, None)
    only = Settings(latency=0.5).cluster
    assert only is not None and only.latency == 0.5


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"problem": "quadratics"}, "mean 'quadratic'"),
        ({"algorithms": "dadan"}, "mean 'dadam'"),
        ({"algorithms": ","}, "--algorithms"),
        ({"topology": "rign"}, "mean 'ring'"),
        ({"topology": "every(x, ring)"}, "every"),
        ({"workers": "8,none"}, "--workers"),
        ({"workers": "0"}, "--workers"),
        ({"seeds": "0"}, "--seeds"),
        ({"seeds": "0,-1"}, "--seeds"),
        ({"skew": "0"}, "--skew"),
        ({"skew": "iid,nan"}, "--skew"),
        ({"skew": "some"}, "--skew"),
        ({"lr": "fast"}, "--lr"),
        ({"lr": ""}, "--lr"),
        ({"lr": "-1"}, "--lr"),
        ({"lr": "muon=0.1"}, "algorithm in --lr"),
        ({"steps": 0}, "--steps"),
        ({"batch": 0}, "--batch"),
        ({"nan": "go"}, "NaN"),
        ({"record": -1}, "--record"),
        ({"order": "awd"}, "order"),
        ({"averaging": "int5"}, "averaging"),
        ({"slow_worker": "3"}, "--slow-worker"),
        ({"slow_worker": ""}, "--slow-worker"),
        ({"deaths": "3=soon"}, "--deaths"),
        ({"joins": "all=3"}, "--joins"),
        ({"compute": "sometimes"}, "compute time"),
        ({"bandwidth": "fast"}, "rate of a link"),
        ({"latency": -1.0}, "latency"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(flags: dict, word: str):
    with pytest.raises(SettingsError, match=word.replace("(", r"\(")):
        Settings(**flags).check()


def test_all_combinations_seed_by_seed():
    settings = Settings(algorithms="dpsgd,dadam", topology="ring,aer", workers="4,8", seeds="2")
    planned = combinations(settings)
    assert len(set(planned)) == len(planned) == 2 * 2 * 2 * 2
    assert [each.seed for each in planned] == [0] * 8 + [1] * 8


def test_an_algorithm_with_its_own_topology_runs_once_for_a_number_of_workers():
    settings = Settings(algorithms="local_sgd,ldsgd", topology="ring,aer", workers="4,8", period=5)
    found = [(each.algorithm, each.topology, each.workers) for each in combinations(settings)]
    own = [each for each in found if each[0] == "local_sgd"]
    assert own == [("local_sgd", "every(5, complete)", 4), ("local_sgd", "every(5, complete)", 8)]
    assert sorted(set(found) - set(own)) == [
        ("ldsgd", topology, workers) for topology in ("aer", "ring") for workers in (4, 8)
    ]


def test_what_a_run_depends_on_gives_it_another_name():
    def named(**changes: object) -> str:
        settings = Settings(algorithms="dadam", topology="every(8, ring)", workers="4", **changes)  # type: ignore[arg-type]
        (combination,) = combinations(settings)
        return file_name(identity(settings, combination))

    others = (
        {"steps": 7},
        {"dim": 5},
        {"lr": "0.5"},
        {"compute": "0.2"},
        {"averaging": "int8"},
        {"skew": "1"},
    )
    names = {named(), *(named(**each) for each in others)}
    assert len(names) == 1 + len(others)
    assert all(name.startswith("dadam-every_8_ring_-4-seed0-") for name in names)
    assert named(lr=str(algorithms.build("dadam").lr), resume=True, json="elsewhere") == named()
