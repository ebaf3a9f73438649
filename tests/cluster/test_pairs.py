"""AD-PSGD in virtual time: what is kept, in which order things happen, and who waits for whom."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from hf_decentral import topology
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.members import neighbours
from hf_decentral.cluster.pairs import Pairs
from hf_decentral.cluster.rows import Rows
from hf_decentral.errors import SettingsError, TopologyError

NOISY = Cluster("lognormal(1, 0.5)")


def graph(name: str, workers: int) -> tuple[tuple[int, ...], ...]:
    return neighbours(topology.build(name, workers))


class Log:
    """Replicas that write down what they are told."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def read(self, worker: int) -> None:
        self.calls.append(("read", worker))

    def gradients(self, workers: Sequence[int], steps: Sequence[int]) -> None:
        self.calls.append(("gradients", tuple(workers), tuple(steps)))

    def average(self, i: int, j: int) -> None:
        self.calls.append(("average", i, j))

    def step(self, worker: int) -> None:
        self.calls.append(("step", worker))

    def adopt(self, worker: int, giver: int) -> None:
        self.calls.append(("adopt", worker, giver))

    def of(self, kind: str) -> list[tuple]:
        return [call for call in self.calls if call[0] == kind]


def start(workers: int, size: int = 3) -> Tensor:
    return torch.randn(workers, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def still(x: Tensor) -> Rows:
    """Rows without gradients: only averages move them."""
    return Rows(x, lambda x, workers, steps: torch.zeros_like(x), lambda worker, gradient: None)


def spread(x: Tensor) -> float:
    return float((x - x.mean(0)).norm())


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("name", "workers"), [("ring", 3), ("ring", 5), ("ring", 8), ("complete", 7)])
def test_averages_keep_the_sum_and_come_to_consensus_on_odd_rings_too(name: str, workers: int, split: bool):
    x = start(workers)
    total, apart = x.sum(0), spread(x)
    pairs = Pairs(NOISY, graph(name, workers), split=split)
    pairs.drive(still(x), updates=200 * workers)
    assert torch.allclose(x.sum(0), total, atol=1e-12)
    assert spread(x) < 1e-6 * apart
    assert pairs.updates == 200 * workers == sum(pairs.steps)


def test_a_worker_reads_averages_and_steps_in_this_order_with_its_own_batch():
    pairs, log = Pairs(NOISY, graph("ring", 5)), Log()
    pairs.drive(log, updates=60)
    steps, asked = [0] * 5, dict.fromkeys(range(5), -1)
    read: set[int] = set()
    for before, call in zip([("",), *log.calls], log.calls, strict=False):
        if call[0] == "read":
            read.add(call[1])
        elif call[0] == "gradients":
            assert set(call[1]) <= read
            for worker, step in zip(call[1], call[2], strict=True):
                assert step == asked[worker] + 1 == steps[worker]
                asked[worker] = step
            read -= set(call[1])
        elif call[0] == "average":
            assert (call[1] - call[2]) % 5 in (1, 4)
        elif call[0] == "step":
            worker = call[1]
            assert before[:2] == ("average", worker)  # atomic: nothing happens in between
            assert worker not in read and asked[worker] == steps[worker]
            steps[worker] += 1
    assert tuple(pairs.steps) == tuple(steps)


def test_the_mean_moves_by_a_gradient_at_what_was_read():
    """The rule in plain words beside the driver: lr / W times the gradient at the copy, in each event."""
    x, workers, lr = start(5), 5, 0.1
    curvature = torch.arange(1.0, 6.0, dtype=torch.float64)

    def gradient(x: Tensor, who: Sequence[int], steps: Sequence[int]) -> Tensor:
        return curvature[list(who), None] * x

    copies: dict[int, Tensor] = {}
    seen: list[int] = []

    class Checked(Rows):
        def read(self, worker: int) -> None:
            super().read(worker)
            copies[worker] = self.x[worker].clone()

        def average(self, i: int, j: int) -> None:
            before = self.x.clone()
            super().average(i, j)
            before[[i, j]] = (before[i] + before[j]) / 2
            assert torch.equal(before, self.x)

        def step(self, worker: int) -> None:
            mean = self.x.mean(0)
            super().step(worker)
            moved = -lr / workers * curvature[worker] * copies[worker]
            assert torch.allclose(self.x.mean(0), mean + moved, atol=1e-14)
            seen.append(worker)

    def step(worker: int, gradient: Tensor) -> None:
        x[worker] -= lr * gradient

    Pairs(NOISY, graph("ring", 5)).drive(Checked(x, gradient, step), updates=500)
    assert len(seen) == 500 and set(seen) == set(range(5))
    assert x.norm() < 1e-6  # all have their optimum at zero


def test_equal_workers_are_stale_by_all_others():
    pairs = Pairs(Cluster("1"), graph("complete", 6))
    pairs.drive(Log(), updates=6 * 50)
    assert pairs.staleness.max == 5
    assert pairs.staleness.mean == pytest.approx(5, abs=0.1)
    assert pairs.seconds == 50 and pairs.steps == [50] * 6


def test_a_straggler_slows_itself_alone_and_is_stale():
    pairs = Pairs(Cluster("1", slow={2: 10.0}), graph("ring", 5))
    pairs.drive(Log(), seconds=100.5)
    assert pairs.steps == [100, 100, 10, 100, 100]
    assert pairs.staleness.max == 40
    one = Pairs(Cluster("1"), ((),))
    one.drive(Log(), updates=7)
    assert one.seconds == 7 and one.averages == 0 and one.staleness == (0.0, 0)


def test_an_exchange_hides_behind_the_computing_until_it_is_longer():
    pair = graph("complete", 2)
    for mb, seconds in ((0.25, 20.0), (1.0, 41.0)):
        # Two exchanges for each step of both, on one link: 0.5 s are hidden, 2 s are not.
        pairs = Pairs(Cluster("1", link="8mbit"), pair, message_bytes=mb * 1e6)
        pairs.drive(Log(), updates=40)
        assert pairs.seconds == pytest.approx(seconds, abs=1)
        assert pairs.sent_bytes == 2 * 40 * mb * 1e6 / 2


def test_only_odd_workers_begin_averages_in_a_split():
    log = Log()
    Pairs(NOISY, graph("complete", 6), split=True).drive(log, updates=300)
    begun = {(i, j) for _, i, j in log.of("average")}
    assert begun == {(i, j) for i in (1, 3, 5) for j in (0, 2, 4)}
    assert {worker for _, worker in log.of("step")} == set(range(6))


def test_the_dead_are_never_chosen_and_the_joining_take_a_neighbours_parameters():
    log = Log()
    pairs = Pairs(NOISY, graph("ring", 6), deaths={1: 20.0, 4: 30.0}, joins={5: 10.0, 4: 40.0})
    pairs.drive(log, seconds=9.9)
    assert pairs.absent == {5} and not [call for call in log.calls if 5 in call[1:]]
    pairs.drive(log, seconds=19.9)
    assert pairs.absent == frozenset() and log.of("adopt")[0][1] == 5 and log.of("adopt")[0][2] in (0, 4)
    marks = []
    for seconds, absent in ((29.9, {1}), (39.9, {1, 4}), (80, {1})):
        marks.append(len(log.calls))
        pairs.drive(log, seconds=seconds)
        assert pairs.absent == absent
    for mark, end, dead in ((marks[0], marks[1], 1), (marks[1], marks[2], 4), (marks[2], None, 1)):
        flat = [w for call in log.calls[mark:end] for w in (call[1] if call[0] == "gradients" else call[1:])]
        assert flat and dead not in flat
    assert log.of("adopt")[1:] in ([("adopt", 4, 3)], [("adopt", 4, 5)])
    after = log.calls[marks[2] :]
    assert ("step", 4) in after and ("step", 2) in after  # 2 has one neighbour left, and goes on


def test_who_has_nobody_left_goes_on_alone():
    log = Log()
    pairs = Pairs(Cluster("1"), graph("ring", 3), deaths={1: 2.5, 2: 2.5})
    pairs.drive(log, seconds=10)
    assert pairs.steps == [10, 2, 2] and pairs.averages == 6


def test_the_gradient_of_a_dead_worker_is_not_taken():
    log = Log()
    Pairs(Cluster("1"), graph("ring", 3), deaths={1: 0.5}).drive(log, seconds=3)
    assert log.of("gradients")[0] == ("gradients", (0, 2), (0, 0))


def test_gradients_are_asked_for_together():
    log = Log()
    Pairs(NOISY, graph("ring", 200)).drive(log, updates=4000)
    assert sum(len(workers) for _, workers, _ in log.of("gradients")) / len(log.of("gradients")) > 20


@pytest.mark.parametrize("split", [False, True])
def test_a_run_goes_on_where_it_stood(split: bool):
    def run(parts: Sequence[int]) -> tuple[Tensor, Pairs]:
        x = start(5)
        cluster = Cluster("exponential(0.1, 1)", link="8mbit")
        rows = quadratics(x)
        kept: dict | None = None
        for updates in parts:  # a new driver for each part
            pairs = Pairs(cluster, graph("ring", 5), 3, 2e5, split, deaths={2: 20.0}, joins={2: 30.0})
            if kept is not None:
                pairs.load(kept)
                copies = rows.copies
                rows = quadratics(x)
                rows.copies.copy_(copies)
            pairs.drive(rows, updates=updates)
            kept = json.loads(json.dumps(pairs.state()))
        return x, pairs

    (whole, one), (parts, other) = run([300]), run([1, 7, 123, 300])
    assert torch.equal(whole, parts)
    assert one.state() == other.state() and one.seconds > 30


def quadratics(x: Tensor) -> Rows:
    def step(worker: int, gradient: Tensor) -> None:
        x[worker] -= 0.05 * gradient

    return Rows(x, lambda x, workers, steps: x - torch.tensor(workers)[:, None], step)


def test_training_comes_near_the_optimum_of_all():
    x = start(7, 1)
    Pairs(NOISY, graph("ring", 7)).drive(quadratics(x), updates=7 * 400)
    assert float(x.mean()) == pytest.approx(3.0, abs=0.15)  # the mean of 0 ... 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pairs(Cluster(), [(1,), (0,), (3,), (2,)]),
        lambda: Pairs(Cluster(), [(2,), (3,), (0,), (1,)], split=True),
        lambda: Pairs(Cluster(), [(2, 1), (0,), (0,)], split=True),
        lambda: Pairs(Cluster(), [(1,), (0,)], deaths={0: 1.0, 1: 2.0}),
    ],
)
def test_pairs_that_never_bring_all_together(make):
    with pytest.raises(TopologyError):
        make()


def test_what_cannot_be_meant():
    with pytest.raises(SettingsError, match="end"):
        Pairs(NOISY, graph("ring", 3)).drive(Log())
    with pytest.raises(SettingsError, match="deaths"):
        Pairs(NOISY, graph("ring", 3), deaths={3: 1.0})
    with pytest.raises(SettingsError, match="slow"):
        Pairs(Cluster(slow={3: 2.0}), graph("ring", 3))
