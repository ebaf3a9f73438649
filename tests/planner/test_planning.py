"""Plans: what is compared, how it is ordered, and which advice follows from it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

import hf_decentral
from hf_decentral import averaging
from hf_decentral import topology as topologies
from hf_decentral.cluster.measured import read, write
from hf_decentral.errors import SettingsError
from hf_decentral.planner import choose, plan
from tests.planner.clusters import CODINGS, GPT2, cluster


def rows(found):
    return {(row.topology, row.codec): row for row in found.rows}


def test_rows_are_sorted_and_compared_with_all_reduce():
    found = plan(cluster(codings=CODINGS), steps=1000, global_batch=64, price=2.0)
    steps = [row.step_seconds for row in found.rows]
    assert steps == sorted(steps)
    base = rows(found)["allreduce", "plain"]
    assert base.speedup_over_allreduce == 1
    for row in found.rows:
        assert row.speedup_over_allreduce == pytest.approx(base.step_seconds / row.step_seconds)
        assert row.low <= row.step_seconds <= row.high
        assert row.throughput == pytest.approx(64 / row.step_seconds)
        assert row.hours == pytest.approx(1000 * row.step_seconds / 3600)
        assert row.cost == pytest.approx(row.hours * 2.0 * 4)
        assert row.limited_by in ("compute", "wire", "stragglers")
        assert row.step_seconds >= 0.25 * 0.999
    assert json.loads(json.dumps(asdict(found)))["rows"][0]["topology"] == found.rows[0].topology


def test_what_was_not_told_is_not_there():
    row = plan(cluster()).rows[0]
    assert row.hours is None and row.cost is None
    assert row.throughput == pytest.approx(1 / row.step_seconds)


def test_a_step_that_hides_its_exchange_is_all_computing():
    """20 MB over 1 Gbit/s are 0.16 s, computing takes 0.25 s; an all-reduce of 0.24 s cannot hide whole."""
    found = rows(plan(cluster()))
    one_peer = found["one_peer_exponential", "plain"]
    assert one_peer.step_seconds == pytest.approx(0.25, rel=0.03)
    assert one_peer.limited_by == "compute"
    assert found["allreduce", "plain"].limited_by == "wire"
    assert found["allreduce", "plain"].sent_bytes == pytest.approx(2 * 3 / 4 * 20e6)
    assert one_peer.sent_bytes == pytest.approx(20e6)


def test_on_a_slow_wire_fewer_bytes_are_recommended():
    found = plan(cluster(link="50mbit", codings=CODINGS))
    advice = found.recommendation
    assert advice.topology != "allreduce" and advice.codec != "plain"
    assert advice.speedup_over_allreduce > 5
    assert "times as fast" in advice.why
    chosen = rows(found)[advice.topology, advice.codec]
    assert chosen.speedup_over_allreduce == advice.speedup_over_allreduce
    assert chosen.mark == ""


def test_on_a_fast_wire_it_advises_to_stay():
    found = plan(cluster(link="400gbit", latency=1e-6))
    assert (found.recommendation.topology, found.recommendation.codec) == ("allreduce", "plain")
    assert found.recommendation.speedup_over_allreduce == 1
    assert "stay with All-Reduce" in found.recommendation.why
    assert "%" in found.recommendation.why or "nothing" in found.recommendation.why


def test_a_gain_that_may_be_a_loss_is_no_reason_to_leave():
    """Only an exact average of parameters that must wait: with an unsure network it may lose."""
    sure = cluster(link="700mbit", uncertainty={"link": 0.0, "compute": 0.0})
    unsure = replace(sure, uncertainty={"link": 1.0, "compute": 0.5})
    names = {"topologies": ["one_peer_exponential"], "averagings": ["plain"]}
    assert plan(sure, **names).recommendation.topology == "one_peer_exponential"
    found = plan(unsure, **names)
    row = rows(found)["one_peer_exponential", "plain"]
    assert row.high > 1.3 * row.step_seconds and row.low < 0.8 * row.step_seconds


def test_intervals_have_zero_width_where_all_is_certain():
    for row in plan(cluster(uncertainty={})).rows:
        assert row.low == row.step_seconds == row.high


def test_stragglers_are_told():
    found = rows(plan(cluster(link="100gbit", compute="exponential(0.1, 0.15)")))
    base = found["allreduce", "plain"]
    assert base.limited_by == "stragglers"
    assert base.straggler_seconds > 0.1 > base.wire_seconds
    assert found["one_peer_exponential", "plain"].step_seconds < base.step_seconds


def test_names_that_are_asked_for_are_compared_and_no_others():
    found = plan(cluster(), topologies=["ring", "every(8, ring)"], averagings=["plain"])
    assert {row.topology for row in found.rows} == {"allreduce", "ring", "every(8, ring)"}
    assert {row.codec for row in found.rows} == {"plain"}
    coded = plan(cluster(), topologies=["ring"], averagings=["int8"])
    assert set(rows(coded)) == {("allreduce", "plain"), ("ring", "int8")}


def test_of_two_workers_all_names_are_one_unless_they_are_asked_for():
    names = ["complete", "ring", "one_peer_exponential", "base_graph(1)", "base_graph"]
    found = plan(cluster(hosts=2), topologies=names, averagings=["plain", "int8"])
    assert {row.topology for row in found.rows} == {"allreduce", *names} - {"base_graph(1)"}
    assert {row.codec for row in found.rows if row.topology == "ring"} == {"plain", "int8"}
    assert "ring" not in {row.topology for row in plan(cluster(hosts=2)).rows}


def test_what_cannot_be_is_left_out_with_the_reason():
    found = plan(cluster(hosts=3), topologies=["hypercube", "ring"], averagings=["plain", "scalecom"])
    assert "power of two" in found.left_out["hypercube"]
    assert "scalecom" in found.left_out["ring + scalecom"]
    assert ("ring", "plain") in rows(found)


def test_nothing_that_can_be_compared_is_a_reason_to_stay():
    found = plan(cluster(hosts=3), topologies=["hypercube"])
    assert found.recommendation.topology == "allreduce"
    assert "none of the others" in found.recommendation.why


@pytest.mark.parametrize(
    ("name", "value"), [("steps", 0), ("global_batch", -1), ("price", -0.5), ("price", float("nan"))]
)
def test_numbers_out_of_range(name, value):
    with pytest.raises(SettingsError, match=name):
        plan(cluster(), **{name: value})


@pytest.mark.parametrize("names", [{"topologies": ["rign"]}, {"averagings": ["int9"]}])
def test_unknown_names(names):
    with pytest.raises(SettingsError, match="Unknown"):
        plan(cluster(), **names)


def test_one_worker_trains_plainly():
    found = plan(cluster(hosts=1))
    assert found.recommendation.topology == "allreduce"
    assert "nobody to average with" in found.recommendation.why
    assert found.rows[0].step_seconds == pytest.approx(0.25)
    assert choose(cluster(hosts=1)).topology == "complete"


def test_a_single_host_has_only_its_own_links():
    found = plan(cluster(hosts=1, each=4, inside="800gbit"))
    names = {row.topology for row in found.rows}
    assert "complete" in names and "aer" not in names and "hierarchical" not in names
    assert found.recommendation.topology == "allreduce"


def test_more_vectors_than_the_parameters_take_longer():
    found = rows(plan(cluster(link="200mbit"), topologies=["ring"], averagings=["plain", "amsgrad"]))
    plain, tracking = found["ring", "plain"], found["ring", "amsgrad"]
    assert tracking.sent_bytes == pytest.approx(2 * plain.sent_bytes)
    assert tracking.step_seconds == pytest.approx(2 * plain.step_seconds, rel=0.1)


def test_measured_codings_are_taken():
    slow = {"int8": replace(CODINGS["int8"], before_seconds=3.0)}
    names = {"topologies": ["ring"], "averagings": ["int8"]}
    quick = rows(plan(cluster(codings=CODINGS), **names))["ring", "int8"]
    late = rows(plan(cluster(codings=slow), **names))["ring", "int8"]
    assert late.step_seconds > 3 > 10 * quick.step_seconds


def test_choose_is_the_best_decentralized_row_and_pure():
    for each in (cluster(), cluster(link="50mbit"), cluster(hosts=2, each=2), cluster(link="400gbit")):
        choice = choose(each)
        assert choice == choose(each)
        topologies.build(choice.topology, each.workers, each.hosts)
        averaging.build(choice.averaging)
        found = rows(plan(each))
        row = found[choice.topology, choice.averaging]
        assert row.speedup_over_allreduce == choice.speedup_over_allreduce
        others = [r for r in found.values() if r.topology != "allreduce" and not r.mark]
        assert row.step_seconds <= 1.02 * min(r.step_seconds for r in others)
        assert f"{1000 * row.step_seconds:.4g} ms" in choice.why


def test_choose_among_some():
    choice = choose(cluster(link="50mbit"), topologies=["aer", "complete"], averagings=["plain"])
    assert (choice.topology, choice.averaging) == ("aer", "plain")
    assert choose(cluster(), topologies=["allreduce"]).topology == "complete"


def test_a_plan_does_not_depend_on_the_file_between(tmp_path):
    measured = cluster(hosts=2, each=2, codings=CODINGS, slow={1: 1.5}, compute="lognormal(0.2, 0.1)")
    write(tmp_path / "cluster.json", measured)
    assert plan(read(tmp_path / "cluster.json")) == plan(measured)


def test_it_is_public():
    assert hf_decentral.plan is plan


def test_half_precision_parameters_gain_nothing_by_bf16():
    half = cluster(about={"dtype": "bfloat16"}, parameter_bytes=GPT2 / 2)
    assert not [row for row in plan(half).rows if row.codec == "bf16" and row.topology != "allreduce"]
