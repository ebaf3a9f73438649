"""The event model: equal to the clock where it models no more, monotone, and with DDP's own buckets."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hf_decentral import topology
from hf_decentral.cluster.clock import Clock
from hf_decentral.cluster.iteration import (
    DDP_BUCKET,
    DDP_FIRST,
    MIB,
    Iteration,
    Method,
    Timing,
    buckets,
    timing,
)
from hf_decentral.cluster.laws import Cluster, law
from hf_decentral.cluster.measured import Coding, Measured, Work
from hf_decentral.errors import SettingsError
from hf_decentral.topology.shards import sharded

P = 1e6  # one second a message at 8 Mbit/s
LAWS = ["0.5", "gaussian(0.5, 0.1)", "lognormal(0.5, 0.5)", "exponential(0.2, 0.3)", "empirical(0.3, 0.5, 2)"]
NAMES = ["complete", "ring", "one_peer_exponential", "base_graph", "aer", "hierarchical", "random_matching"]
HOSTS = (0, 0, 0, 1, 1, 1)


def behind(name: str, workers: int, hosts: tuple[int, ...] | None = None, size: float = P) -> Method:
    """In one piece of ``size`` bytes."""
    return Method(topology.build(name, workers, hosts), bucket_bytes=size, behind=True)


def steps_of(cluster: Cluster, method: Method, workers: int, steps: int = 40, work: Work | None = None):
    return Iteration(cluster, work or Work(P), method, workers).ends(steps)


def clock_steps(cluster: Cluster, method: Method, workers: int, steps: int = 40, seed: int = 0) -> np.ndarray:
    """The same by the clock, which is told what workers send."""
    rounds = method.topology
    assert rounds is not None
    clock, shards = Clock(cluster, workers, seed, topology=rounds), sharded(rounds)
    found = [np.zeros(workers)]
    for step in range(steps):
        round = rounds(step)
        copies = clock._links.costs(round, shards=shards.get(round.key)).copies
        clock.advance(round, "awc", copies * P)
        found.append(clock.times.numpy())
    return np.array(found)


@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_one_piece_without_local_work_is_the_clock_step_for_step(name: str, text: str):
    for link, hosts in (("none", None), ("8mbit", None), ("20mbit", HOSTS)):
        cluster = Cluster(text, {2: 1.7}, link, 0.01, hosts, inside="80mbit", inside_latency=0.001)
        method = behind(name, 6, hosts)
        found, expected = steps_of(cluster, method, 6), clock_steps(cluster, method, 6)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_idle_rounds_and_half_duplex_are_the_clock_too():
    cluster = Cluster("lognormal(0.5, 0.5)", link="8mbit", half_duplex=True, correlation=0.4)
    rounds = topology.every(3, topology.build("ring", 5))
    method = Method(rounds, bucket_bytes=P, behind=True)
    np.testing.assert_allclose(steps_of(cluster, method, 5), clock_steps(cluster, method, 5), rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    workers=st.integers(3, 12),
    seed=st.integers(0, 99),
    text=st.sampled_from(LAWS),
    sparse=st.sampled_from(["one_peer_exponential", "base_graph", "random_matching"]),
    pieces=st.integers(1, 5),
)
def test_hearing_fewer_is_never_slower_on_the_same_draws(workers, seed, text, sparse, pieces):
    """With links that cost a sparse round no more than a mean of all: here none do."""
    measured = [Cluster(text), Work(P, local_seconds=0.05, combine_seconds=0.0)]
    methods = [
        Method(topology.build(sparse, workers), bucket_bytes=P / pieces, behind=True),
        Method(topology.build("complete", workers), bucket_bytes=P / pieces, behind=True),
        Method(topology.build("complete", workers)),  # needs the present gradients
    ]
    ends = [Iteration(*measured, method, workers, seed).ends(25) for method in methods]
    for less, more in pairwise(ends):
        assert (less <= more + 1e-9).all()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.booleans(),
    st.sampled_from(
        ["compute", "local", "bytes", "link", "latency", "half", "combine", "slow", "payload", "crowding"]
    ),
    st.floats(1.01, 5.0),
)
def test_more_of_anything_is_never_faster(name: str, after_all: bool, what: str, factor: float):
    def ends(grown: str) -> np.ndarray:
        f = factor if grown else 1.0
        cluster = Cluster(
            law("lognormal(0.5, 0.5)").times(f if grown == "compute" else 1.0).text,
            {1: f} if grown == "slow" else {},
            f"{8 / f if grown == 'link' else 8:.6f}mbit",
            0.01 * (f if grown == "latency" else 1.0),
            half_duplex=grown == "half",
            crowding=f if grown == "crowding" else 1.0,
        )
        work = Work(
            P * (f if grown == "bytes" else 1.0),
            local_seconds=0.05 * (f if grown == "local" else 1.0),
            combine_seconds=0.02 * (f if grown == "combine" else 1.0),
        )
        coding = Coding(0.25 * f, 0.03, 0.03) if grown == "payload" else None
        if what == "payload" and coding is None:
            coding = Coding(0.25, 0.03, 0.03)
        # As many pieces whatever the bytes.
        size = work.parameter_bytes / 4
        method = Method(topology.build(name, 6), coding, bucket_bytes=size, behind=after_all)
        return Iteration(cluster, work, method, 6).ends(20)

    assert (ends(what) >= ends("") - 1e-9).all()


@pytest.mark.parametrize("name", ["ring", "one_peer_exponential", "aer", "complete"])
def test_a_worker_that_is_always_slow_sets_the_pace(name: str):
    cluster = Cluster("1", slow={3: 2.5})
    assert timing(Measured(8, cluster, Work(P)), behind(name, 8)).step_seconds == pytest.approx(2.5)


def test_slow_steps_of_the_one_or_the_other_average_out_but_those_of_all_do_not():
    """With correlation 1 everybody has the same times, and nothing is left to gain."""
    text = "lognormal(1, 0.5)"
    methods = [Method(), behind("complete", 8), behind("ring", 8)]
    own, common = (
        [timing(Measured(8, Cluster(text, correlation=r), Work(1.0)), method, 600) for method in methods]
        for r in (0.0, 1.0)
    )
    assert own[0].step_seconds > 1.2 * own[1].step_seconds > 1.2 * own[2].step_seconds
    # Above the mean of the law, since a lognormal time of few steps is what it is.
    assert common[1].step_seconds == pytest.approx(common[0].step_seconds, rel=1e-9)
    assert common[2].step_seconds == pytest.approx(common[0].step_seconds, rel=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("text", LAWS)
def test_correlated_times_have_the_law_that_was_written(text: str, correlation: float):
    """Over many steps, of which each brings one independent draw of what is common."""
    cluster = Cluster(text, correlation=correlation)
    times = np.array([cluster.seconds(4, step) for step in range(1500)])
    assert [cluster.seconds_of(2, step) for step in range(5)] == pytest.approx(times[:5, 2].tolist())
    if cluster.law.kind == "constant":
        assert (times == 0.5).all()
        return
    u = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    # The share of times below a quantile: five standard errors of 1,500 independent steps.
    below = (times[:, :, None] <= cluster.law.at(u)).mean((0, 1))
    assert (np.abs(below - u) <= 5 * np.sqrt(u * (1 - u) / 1500)).all()
    ranks = times.argsort(0).argsort(0)
    # Of ranks it is 6/pi asin(r/2) (Spearman's, of a Gaussian copula).
    expected = 6 / math.pi * math.asin(correlation / 2)
    assert np.corrcoef(ranks.T)[0, 1:] == pytest.approx([expected] * 3, abs=0.1)


def test_an_empirical_law_is_what_was_measured():
    cluster = Cluster("empirical(1, 1, 1, 1, 9)")
    times = np.array([cluster.seconds(8, step) for step in range(2000)])
    assert times.min() == 1 and times.max() <= 9
    assert (times == 1).mean() == pytest.approx(0.75, abs=0.02)
    assert times.mean() == pytest.approx(cluster.law.mean, rel=0.03) and cluster.law.mean == 2.0


def test_a_known_example():
    """Eight workers with 0.5 + Exp(0.5): seconds a step over 400 steps of another generator, whose mean was
    0.994. Within three standard deviations of such runs, of which there are twelve here."""
    cluster = Cluster("exponential(0.5, 0.5)")
    known = {"ring": 1.177, "complete": 1.261, "": 1.819, "alone": 0.994}
    for name, expected in known.items():
        if name == "alone":
            runs = [np.mean([cluster.seconds(8, step, seed) for step in range(400)]) for seed in range(12)]
        else:
            method = behind(name, 8) if name else Method()
            runs = [
                Iteration(cluster, Work(1.0), method, 8, seed).ends(400).max() / 400 for seed in range(12)
            ]
        assert abs(np.mean(runs) - expected) <= 3 * np.std(runs, ddof=1), name


@pytest.mark.parametrize("pieces", [2, 4, 10])
@pytest.mark.parametrize("compute", [0.1, 1.6, 9.0])
def test_averaging_and_stepping_hide_behind_the_wire(pieces: int, compute: float):
    """With ``h`` to average and step one of ``m`` pieces, equal workers take the longest of three ways round:
    all pieces after computing, or all but the last one beside the wire, or the wire alone."""
    cluster, work = Cluster(str(compute), link="8mbit", latency=0.05), Work(P, 1 / 3, 0.6, 0.4)
    method = behind("one_peer_exponential", 8, size=P / pieces)
    h = (0.6 + 0.4) / pieces
    first, last = 0.05 + 1 / pieces, 0.05 + 1.0
    expected = max(compute + pieces * h, first + (pieces - 1) * h, last)
    assert timing(Measured(8, cluster, work), method).step_seconds == pytest.approx(expected, rel=1e-9)


def test_codes_are_made_and_read_one_after_the_other():
    cluster, coding = Cluster("0.1", link="8mbit", latency=0.05), Coding(0.25, 0.3, 0.2)
    found = timing(Measured(8, cluster, Work(P)), Method(topology.build("ring", 8), coding, P, True))
    # Two neighbours share the link; two codes are read, the first one before the second has to be there.
    assert found.step_seconds == pytest.approx(0.3 + 0.05 + 2 * 0.25 + 2 * 0.2)
    assert found.sent_bytes == 2 * 0.25 * P


# Sizes of layers, inputs by outputs in float32; 512 by 512 are 1 MiB to the byte.
MODELS = {
    "all in one": [(8, 8), (8, 4)],
    "to the byte": [(512, 512)] * 60,
    "wide at the end": [(64, 4096), (4096, 4096), (4096, 64)],
    "wide at the begin": [(4096, 2048), (2048, 64), (64, 64), (64, 10)],
    "many small": [(100, 100)] * 90,
    "a language model": [(3000, 768)] + [(768, 2304), (768, 768), (768, 3072), (3072, 768)] * 4,
}


def layers(name: str, bias: bool) -> list[nn.Parameter]:
    with torch.device("meta"):
        return [p for a, b in MODELS[name] for p in nn.Linear(a, b, bias=bias).parameters()]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [25 * MIB, 4 * MIB, 0.5 * MIB])
def test_buckets_are_those_that_torch_makes(name: str, bias: bool, size: float):
    """Backward makes the gradients in the reverse order of the parameters."""
    made = [torch.empty(p.shape) for p in reversed(layers(name, bias))]
    sizes = [p.numel() * p.element_size() for p in made]
    limits = [int(min(DDP_FIRST, size)), int(size)]
    theirs, _ = dist._compute_bucket_assignment_by_size(made, limits)
    work = Work(sum(sizes), pieces=tuple(((k + 1) / len(sizes), s / sum(sizes)) for k, s in enumerate(sizes)))
    ours = buckets(work, size)
    assert [share * sum(sizes) for _, share in ours] == pytest.approx(
        [sum(sizes[k] for k in bucket) for bucket in theirs]
    )
    assert [time for time, _ in ours] == pytest.approx([(max(b) + 1) / len(sizes) for b in theirs])


def test_ddp_itself_makes_them_after_its_first_step():
    work = MODELS["wide at the begin"]
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in work))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(model)
        for _ in range(3):
            wrapped(torch.zeros(1, 4096)).sum().backward()
        told = wrapped._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    finally:
        dist.destroy_process_group()
    sizes = [4 * p.numel() for p in reversed(list(model.parameters()))]
    pieces = tuple(((k + 1) / len(sizes), size / sum(sizes)) for k, size in enumerate(sizes))
    ours = [round(share * sum(sizes)) for _, share in buckets(Work(sum(sizes), pieces=pieces), DDP_BUCKET)]
    assert ours == [int(size) for size in told.split(",")]


def test_what_limits_a_step():
    def limit(cluster: Cluster, method: Method) -> Timing:
        return timing(Measured(8, cluster, Work(P)), method)

    assert limit(Cluster("5", link="8mbit"), behind("ring", 8)).limited_by == "compute"
    slow_link = limit(Cluster("0.1", link="8mbit"), behind("ring", 8))
    assert slow_link.limited_by == "wire"
    assert slow_link.wire_seconds == pytest.approx(1.9) and slow_link.straggler_seconds == pytest.approx(0)
    straggler = limit(Cluster("1", slow={0: 2.0}), behind("ring", 8))
    assert straggler.limited_by == "stragglers" and straggler.straggler_seconds == pytest.approx(1.0)
    drawn = limit(Cluster("lognormal(1, 0.5)"), Method())
    assert drawn.limited_by == "stragglers"
    parts = drawn.compute_seconds + drawn.wire_seconds + drawn.straggler_seconds
    assert parts == pytest.approx(drawn.step_seconds)


def test_the_bytes_of_a_step():
    cluster = Cluster("1", hosts=(0, 0, 0, 0, 1, 1, 1, 1))
    for name, copies in {
        "ring": 2,
        "one_peer_exponential": 1,
        "complete": 1.75,
        "hierarchical": 1.75,
    }.items():
        assert timing(Measured(8, cluster, Work(P)), behind(name, 8, cluster.hosts)).sent_bytes == copies * P
    assert timing(Measured(8, cluster, Work(P)), Method()).sent_bytes == 1.75 * P
    rare = Method(topology.every(4, topology.build("ring", 8)), behind=True)
    assert timing(Measured(8, cluster, Work(P)), rare).sent_bytes == 0.5 * P


def test_a_single_worker_waits_for_nobody():
    work = Work(P, local_seconds=0.25)
    for method in (Method(), behind("complete", 1), behind("ring", 1)):
        found = timing(Measured(1, Cluster("1", link="8mbit", latency=1.0), work), method)
        assert found.step_seconds == pytest.approx(1.25) and found.sent_bytes == 0


def test_what_cannot_be_timed():
    with pytest.raises(SettingsError, match="steps"):
        Iteration(Cluster(), Work(P), Method(), 4).ends(0)
    with pytest.raises(SettingsError, match="hosts"):
        Iteration(replace(Cluster(), hosts=(0, 1)), Work(P), Method(), 4)
