"""The gradients of all workers at once are those of each alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from hf_decentral.errors import ParameterError
from hf_decentral.simulator import Problem, problems
from hf_decentral.simulator.gradients import CHUNK_BYTES, Gradients, stacked
from hf_decentral.simulator.shards import Shards, split

WORKERS = 5


def prepared(problem: Problem, chunk: int | None = None) -> tuple[Gradients, dict[str, nn.Parameter], Shards]:
    """Workers that have gone apart."""
    shards = split(problem, WORKERS)
    params = stacked(problem.model, WORKERS)
    draw = torch.Generator().manual_seed(0)
    for p in params.values():
        p.data += 0.1 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
    return Gradients(problem, params, shards, 3, chunk), params, shards


def alone(problem: Problem, params: dict[str, nn.Parameter], samples: Tensor, worker: int) -> list[Tensor]:
    """Loss and gradients of one worker, by backward."""
    model = copy.deepcopy(problem.model)
    for name, p in model.named_parameters():
        if name in params:
            p.data.copy_(params[name][worker])
    loss = problem.loss(model(problem.train[0][samples]), problem.train[1][samples])
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def own(model: nn.Module, inputs: Tensor, targets: Tensor) -> Problem:
    data = inputs, targets
    return Problem("own", model, nn.functional.mse_loss, data, data)


def linear(model: nn.Module, features: int = 4) -> Problem:
    draw = torch.Generator().manual_seed(1)
    return own(model, torch.randn(40, features, generator=draw), torch.randn(40, 2, generator=draw))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    return model


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model


CASES = {
    "quadratic": lambda: problems.build("quadratic", 7),
    "logistic": lambda: problems.build("logistic", 7),
    "char-gpt": lambda: problems.build("char-gpt", 8, length=6),
    "convolutional": lambda: own(Convolutional(), torch.randn(20, 1, 8, 8), torch.randn(20, 2)),
    "tied": lambda: linear(tied()),
    "frozen": lambda: linear(frozen()),
}


@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_backward(name: str, chunk: int | None):
    problem = CASES[name]()
    gradients, params, shards = prepared(problem, chunk)
    memory = {name: p.grad.data_ptr() for name, p in params.items()}
    losses = gradients(6)
    samples = shards.batch(6, 3)
    for worker in range(WORKERS):
        loss, *grads = alone(problem, params, samples[worker], worker)
        torch.testing.assert_close(losses[worker], loss)
        assert len(grads) == len(params)
        for grad, p in zip(grads, params.values(), strict=True):
            torch.testing.assert_close(p.grad[worker], grad, rtol=2e-5, atol=1e-6)
    assert memory == {name: p.grad.data_ptr() for name, p in params.items()}


def test_workers_that_have_moved_into_buckets_are_followed():
    problem = linear(nn.Linear(4, 2))
    gradients, params, _ = prepared(problem)
    gradients(0)
    before = {name: p.grad.clone() for name, p in params.items()}
    for p in params.values():
        p.data = p.detach().clone()
    gradients(0)
    assert all(torch.equal(before[name], p.grad) for name, p in params.items())


def test_a_chunk_is_as_many_workers_as_one_run_says():
    small, _, _ = prepared(linear(nn.Linear(4, 2)))
    assert small.chunk == WORKERS
    large, _, _ = prepared(linear(nn.Linear(1_000_000, 2), 1_000_000))
    assert large.worker_bytes > 2 * 4 * 1_000_000
    assert large.chunk == max(1, CHUNK_BYTES // large.worker_bytes)


def test_layers_draw_for_each_worker_and_the_same_again_in_the_same_step():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 2))
    draw = torch.Generator().manual_seed(1)
    problem = own(model, torch.ones(40, 64), torch.randn(40, 2, generator=draw))
    params = stacked(model, WORKERS)
    gradients = Gradients(problem, params, split(problem, WORKERS), 1, None)
    state = torch.get_rng_state()
    gradients(0)
    first = params["1.weight"].grad.clone()
    dropped = first[:, 0] == 0
    assert not torch.equal(dropped[0], dropped[1])
    gradients(1)
    assert not torch.equal(first == 0, params["1.weight"].grad == 0)
    gradients(0)
    assert torch.equal(first, params["1.weight"].grad)
    assert torch.equal(state, torch.get_rng_state())


def test_the_users_model_is_left_alone():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    before = [p.detach().clone() for p in model.parameters()]
    gradients, _, _ = prepared(linear(model))
    gradients(0)
    assert not model.training
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, model.parameters(), strict=True))


def test_buffers_that_change_are_refused_by_name():
    with pytest.raises(ParameterError, match=r"changes its buffer '1\.running_mean'"):
        prepared(linear(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))))
    still = nn.BatchNorm1d(4, track_running_stats=False)
    prepared(linear(nn.Sequential(nn.Linear(4, 4), still, nn.Linear(4, 2))))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found if found.sum() > 0 else -found


def test_what_cannot_run_for_several_workers_is_told():
    with pytest.raises(ParameterError, match="Branching cannot be computed for several workers"):
        prepared(linear(Branching()))
    model = nn.Linear(4, 2).requires_grad_(False)
    with pytest.raises(ParameterError, match="no parameter that requires a gradient"):
        stacked(model, 3)


@pytest.mark.parametrize("chunk", [2, None])
def test_workers_with_numbers_that_are_not_finite_are_found_and_their_gradients_are_zero(chunk: int | None):
    problem = linear(nn.Linear(4, 2))
    gradients, params, _ = prepared(problem, chunk)
    params["weight"].data[3, 0, 0] = float("nan")
    params["bias"].data[1, 0] = float("inf")
    gradients(0)
    assert gradients.bad == [1, 3]
    for p in params.values():
        assert bool(p.grad.isfinite().all())
        assert not p.grad[[1, 3]].any()
        assert bool(p.grad[[0, 2, 4]].any())


def test_large_numbers_are_finite():
    problem = own(nn.Linear(1, 1, bias=False), torch.full((10, 1), 1e15), torch.full((10, 1), 1e15))
    params = stacked(problem.model, WORKERS)
    for p in params.values():
        p.data.fill_(3000.0)
    gradients = Gradients(problem, params, split(problem, WORKERS), 1, None)
    gradients(0)  # a gradient of some 1e34, whose square is none
    assert gradients.bad == []
    assert float(params["weight"].grad.min()) > 1e30
