"""Asynchronous pairs among real processes."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from hf_decentral import topology
from hf_decentral.cluster.meetings import Meetings
from hf_decentral.cluster.members import neighbours
from hf_decentral.errors import DecentralizedError, PeerLost
from tests.processes import outcomes, run


def graph(name: str) -> tuple[tuple[int, ...], ...]:
    return neighbours(topology.build(name, dist.get_world_size()))


def start(worker: int) -> Tensor:
    return torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(worker))


def stand_still(worker: int, name: str, steps: list[int]) -> tuple[Tensor, int, int, float]:
    x = start(worker)
    with Meetings([x[:300].view(3, 100), x[300:]], graph(name), seed=1) as meetings:
        for _ in range(steps[worker]):
            with meetings.local_step():
                pass
    return x, meetings.steps, meetings.averages, meetings.sent_bytes


@pytest.mark.parametrize(("workers", "name"), [(4, "complete"), (5, "ring")])
def test_averages_keep_the_sum_and_come_to_consensus(workers: int, name: str):
    steps = [300 if worker % 2 else 3 + worker for worker in range(workers)]  # they need not be equal
    found = run(workers, stand_still, name, steps)
    before = torch.stack([start(worker) for worker in range(workers)])
    after = torch.stack([x for x, *_ in found])
    assert torch.allclose(after.sum(0), before.sum(0), atol=1e-11)
    assert float((after - after.mean(0)).norm()) < 1e-6 * float((before - before.mean(0)).norm())
    assert [each[1] for each in found] == steps
    averages = [each[2] for each in found]
    # One behind each step and one after the last.
    assert averages[1::2] == [301] * (workers // 2)
    assert sum(averages[::2]) == sum(averages[1::2])
    assert [each[3] for each in found] == [8000.0 * count for count in averages]


def train(worker: int) -> tuple[float, float]:
    torch.manual_seed(worker)
    data = torch.randn(256, 8, generator=torch.Generator().manual_seed(7))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    with Meetings(model.parameters(), graph("ring")) as meetings:
        for step in range(150):
            batch = data[torch.randint(0, 256, (16,))]
            torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True)).backward()
            with meetings.local_step():
                optimizer.step()
            optimizer.zero_grad()
            assert meetings.steps == step + 1
    weight = model.weight.detach()
    return float((weight - 1).abs().max()), meetings.waited_seconds


def test_a_model_is_trained_with_any_optimizer():
    for error, waited in run(5, train):
        assert error < 1e-3 and waited >= 0


def one_is_late(worker: int) -> tuple[int, float]:
    x = torch.nn.Parameter(torch.full((10,), float(worker)))
    store = dist.distributed_c10d._get_default_store()
    with Meetings([x], graph("complete"), deadline_seconds=60) as meetings:
        if worker == 0:  # it does not even begin until all others are done
            store.wait(["done/1", "done/2", "done/3"])
        for _ in range(20):
            with meetings.local_step():
                pass
        store.set(f"done/{worker}", "")
    return meetings.averages, float(x.mean())


def test_nobody_waits_for_a_slow_worker():
    found = run(4, one_is_late)
    assert found[0][0] > 0  # it was averaged with all the same
    assert all(value == pytest.approx(1.5, abs=0.1) for _, value in found)


def lose(worker: int, odd_one: int) -> tuple[tuple[int, ...], str]:
    x = torch.zeros(1000)
    try:
        with Meetings([x], graph("complete"), deadline_seconds=30) as meetings:
            for step in range(2000):
                if worker == odd_one and step == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
                with meetings.local_step():
                    pass
    except PeerLost as lost:
        return lost.workers, str(lost)
    return (), ""


@pytest.mark.parametrize("odd_one", [0, 1])
def test_a_killed_worker_is_named(odd_one: int):
    found = outcomes(4, lose, odd_one)
    assert found[odd_one].exit_code == -signal.SIGKILL
    partners = [rank for rank in range(4) if rank % 2 != odd_one % 2]
    for rank in partners:
        lost, text = found[rank].value
        assert lost == (odd_one,), text


def silent(worker: int) -> str:
    x = torch.zeros(10)
    store = dist.distributed_c10d._get_default_store()
    meetings = Meetings([x], graph("ring"), deadline_seconds=2)
    if worker == 1:  # it lives, and never comes again
        store.wait(["told"])
        os._exit(0)
    try:
        meetings.close()
    except PeerLost as lost:
        store.set("told", "")
        return str(lost)
    return ""


def test_a_worker_that_gives_no_sign_is_named_after_the_deadline():
    found = outcomes(2, silent)
    assert "Worker 1 did not answer worker 0" in found[0].value
    assert "goodbye" in found[0].value


def refused(worker: int) -> list[str]:
    x, ring = torch.zeros(10), graph("ring")

    def late() -> None:
        meetings = Meetings([x], ring)
        meetings.close()
        meetings.close()
        with meetings.local_step():
            pass

    told = []
    for make in (
        lambda: Meetings([x, torch.zeros(3, dtype=torch.float64)], ring),
        lambda: Meetings([x.long()], ring),
        lambda: Meetings([x], ring[:3]),
        lambda: Meetings([x], [(1,), (0,), (3,), (2,)]),
        lambda: Meetings([torch.zeros(10 + (worker == 3))], ring),
        late,
    ):
        with pytest.raises(DecentralizedError) as error:
            make()
        told.append(f"{error.typename}: {error.value}")
    return told


def test_what_cannot_be_meant_is_told_on_every_worker():
    expected = [
        "ParameterError: Parameters of float32, float64",
        "ParameterError: Parameters of int64",
        "SettingsError: neighbours=3",
        "TopologyError: Workers 2, 3 never meet worker 0",
        "MismatchError: The workers disagree on the parameters: worker 3 has 11 numbers of float32",
        "SettingsError: local_step() was called after close()",
    ]
    for found in run(4, refused):
        assert [text.startswith(begin) for text, begin in zip(found, expected, strict=True)] == [True] * 6
