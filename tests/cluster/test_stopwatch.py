"""Steps of real loops, timed through hooks."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import nn

from hf_decentral.bench.models import Emulated
from hf_decentral.cluster.stopwatch import MOST_RECORDS, Record, Stopwatch, summary
from hf_decentral.optim import decentralize


def loop(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, passes: int = 1) -> None:
    for _ in range(steps):
        for _ in range(passes):
            model(torch.zeros(1)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def emulated(seconds: float = 0.048) -> Emulated:
    return Emulated(seconds, 16 * 64 * 10)


def hooks_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    from torch.optim import optimizer as torch_optimizer

    found = len(torch_optimizer._global_optimizer_pre_hooks) + len(
        torch_optimizer._global_optimizer_post_hooks
    )
    found += len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
    found += sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())
    return found + len(model._forward_hooks)


@pytest.mark.parametrize("gossips", [False, True])
def test_the_parts_of_a_step(gossips: bool):
    model = emulated()
    optimizer = torch.optim.AdamW(model.parameters())
    if gossips:
        decentralize(optimizer, "complete", model=model)
    before = hooks_of(model, optimizer)
    watch = Stopwatch(optimizer, model)
    loop(model, optimizer, 5)
    records = watch.records
    assert len(records) == 4  # nothing tells when the first one began
    for each in records:
        assert each.compute_seconds >= 0.048 and 0 < each.local_seconds < 0.048
        assert each.forward_seconds is not None
        assert 0.016 <= each.forward_seconds <= each.compute_seconds - 0.032
        # The last layer has its gradient first, and each took its share of backward.
        ready = list(each.ready_seconds)
        assert ready == sorted(ready, reverse=True) and len(ready) == 16
        assert ready[-1] >= each.forward_seconds + 0.002 and ready[0] <= each.compute_seconds
    steps = watch.steps()
    assert steps.parameter_bytes == 4 * 16 * 64 * 10
    assert steps.forward_share == pytest.approx(1 / 3, abs=0.1)
    assert [size for _, size in steps.ready] == [4 * 64 * 10] * 16
    watch.remove()
    assert hooks_of(model, optimizer) == before
    loop(model, optimizer, 2)
    assert watch.records == records


def test_micro_batches_are_one_step_and_the_last_forward_counts():
    model = emulated()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = Stopwatch(optimizer, model)
    loop(model, optimizer, 3, passes=2)
    assert len(watch.records) == 2
    for each in watch.records:
        assert each.compute_seconds >= 0.096
        assert each.forward_seconds is not None and each.forward_seconds >= 0.064
        assert min(each.ready_seconds) > each.forward_seconds


def test_without_a_model_forward_is_not_known_and_other_optimizers_do_not_count():
    model, other = emulated(0.003), nn.Linear(2, 2)
    optimizer, stranger = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    watch = Stopwatch(optimizer)
    loop(model, optimizer, 2)
    other(torch.ones(2)).sum().backward()
    stranger.step()
    assert len(watch.records) == 1 and watch.records[0].forward_seconds is None
    assert watch.steps().forward_share is None


def test_a_step_with_an_evaluation_and_what_was_before_clear_are_left_out():
    model = emulated(0.003)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = Stopwatch(optimizer, model)
    loop(model, optimizer, 3)
    model.eval()
    model(torch.zeros(1))
    model.train()
    loop(model, optimizer, 1)
    assert len(watch.records) == 2
    watch.clear()
    time.sleep(0.1)
    loop(model, optimizer, 3)
    assert len(watch.records) == 2
    assert all(each.compute_seconds < 0.1 for each in watch.records)


def test_a_step_that_raised_and_one_that_calls_the_one_above():
    class Twice(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    model = emulated(0.003)
    optimizer = Twice(model.parameters(), lr=0.1)
    watch = Stopwatch(optimizer, model)
    loop(model, optimizer, 3)
    assert len(watch.records) == 2

    def refuse(*args):
        raise ArithmeticError

    hook = optimizer.register_step_pre_hook(refuse)
    with pytest.raises(ArithmeticError):
        loop(model, optimizer, 1)
    hook.remove()
    loop(model, optimizer, 2)
    assert len(watch.records) == 4


def test_frozen_and_unused_parameters():
    model = emulated(0.003)
    model.layers[0].requires_grad_(False)
    unused = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([*model.parameters(), unused], lr=0.1)
    watch = Stopwatch(optimizer, model)
    loop(model, optimizer, 3)
    assert all(len(each.ready_seconds) == 16 and math.isnan(each.ready_seconds[-1]) for each in watch.records)
    steps = watch.steps()
    assert len(steps.ready) == 15 and steps.parameter_bytes == 15 * 4 * 640 + 12


def test_old_steps_are_forgotten():
    layer = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    watch = Stopwatch(optimizer)
    for _ in range(MOST_RECORDS + 10):
        optimizer.step()
    assert len(watch.records) == MOST_RECORDS


def test_a_summary_takes_medians():
    records = [Record(2.0, 1.0, [2.0, math.nan], 0.1), Record(4.0, 1.0, [3.0, math.nan], 0.2)]
    steps = summary(records, [8, 4])
    assert steps.compute_seconds == (2.0, 4.0) and steps.local_seconds == (0.1, 0.2)
    assert steps.forward_share == pytest.approx(0.375)
    assert steps.ready == ((pytest.approx(0.875), 8),) and steps.parameter_bytes == 12
    assert summary([], [8]).compute_seconds == ()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_stream_is_timed():
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = Stopwatch(optimizer, model)
    x = torch.randn(4096, 2048, device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    whole = time.perf_counter() - began
    records = watch.records
    assert len(records) == 9
    assert sum(each.compute_seconds + each.local_seconds for each in records) <= whole
    for each in records:
        assert each.forward_seconds is not None
        assert 0 < each.forward_seconds < min(each.ready_seconds) <= max(each.ready_seconds)
        assert max(each.ready_seconds) <= each.compute_seconds * 1.001
