"""Every sample has one owner, shards are as skewed as one asks, and batches depend on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hf_decentral.errors import SettingsError
from hf_decentral.simulator import Problem, problems
from hf_decentral.simulator.shards import groups_of, split


def with_targets(targets: Tensor, groups: Tensor | None = None) -> Problem:
    data = torch.zeros(len(targets), 2), targets
    return Problem("own", nn.Linear(2, 1), nn.functional.mse_loss, data, data, groups=groups)


def kinds(problem: Problem, workers: int, skew: float | None) -> float:
    """Share of a worker's commonest group, mean over the workers."""
    shards, groups = split(problem, workers, skew, seed=3), groups_of(problem).numpy()
    return float(
        np.mean([np.bincount(groups[shards.of(w)]).max() / len(shards.of(w)) for w in range(workers)])
    )


@pytest.mark.parametrize("skew", [None, 0.05, 1.0])
@pytest.mark.parametrize("workers", [1, 3, 8, 101, 1000])
def test_every_sample_has_one_owner_and_no_worker_has_more_than_one_more(workers: int, skew: float | None):
    shards = split(problems.build("logistic", samples=1003), workers, skew)
    assert sorted(shards.order.tolist()) == list(range(1003))
    sizes = {len(shards.of(w)) for w in range(workers)}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


def test_skew_is_a_matter_of_degree():
    problem = problems.build("logistic")
    found = [kinds(problem, 16, skew) for skew in (None, 100.0, 1.0, 0.05)]
    assert found == sorted(found)
    assert found[0] < 0.2 < 0.7 < found[-1]


def test_a_large_alpha_has_the_variance_of_its_law():
    """Shares of ``Dir(alpha)`` have the variance ``(1/K)(1 - 1/K) / (K alpha + 1)``; few workers take few
    samples here, so that no group runs out."""
    groups = torch.arange(40_000) % 10
    problem = with_targets(torch.zeros(40_000), groups)
    shards = split(problem, 400, 2.0, seed=1)
    first = np.array([np.bincount(groups.numpy()[shards.of(w)], minlength=10) / 100 for w in range(400)])
    expected = 0.1 * 0.9 / 21 + 0.1 * 0.9 * 20 / 21 / 100  # of the shares, and of 100 draws
    assert np.isclose(first.var(0).mean(), expected, rtol=0.15)


def test_groups_are_classes_or_tenths_of_the_data():
    assert groups_of(with_targets(torch.tensor([4, 0, 4]))).tolist() == [4, 0, 4]
    assert groups_of(with_targets(torch.tensor([0.5, 2.0, 1.0, -1.0, 7.0]))).tolist() == [2, 6, 4, 0, 8]
    assert groups_of(with_targets(torch.zeros(5, 3))).tolist() == [0, 2, 4, 6, 8]
    assert groups_of(with_targets(torch.zeros(3), torch.tensor([1, 1, 0]))).tolist() == [1, 1, 0]


def test_a_batch_is_the_workers_own():
    shards = split(problems.build("logistic"), 7, 0.1)
    for step in (0, 5):
        batch = shards.batch(step, 4)
        for w in range(7):
            assert set(batch[w].tolist()) <= set(shards.of(w).tolist())
    assert not torch.equal(shards.batch(0, 4), shards.batch(1, 4))


def test_a_worker_draws_the_same_whatever_the_number_of_workers_is():
    """The numbers drawn are the same; the samples are where the shards are."""
    problem = with_targets(torch.zeros(960))
    few, many = split(problem, 4, seed=5), split(problem, 8, seed=5)
    for w in range(4):
        there = [many.of(w).tolist().index(k) for k in many.batch(3, 6)[w].tolist()]
        here = [few.of(w).tolist().index(k) for k in few.batch(3, 6)[w].tolist()]
        assert [k // 2 for k in here] == there


@pytest.mark.parametrize("skew", [0.0, -1.0, float("inf"), float("nan")])
def test_a_skew_that_is_none(skew: float):
    with pytest.raises(SettingsError, match="skew="):
        split(problems.build("logistic"), 4, skew)


def test_more_workers_than_samples():
    with pytest.raises(SettingsError, match="Simulate 20 workers at most"):
        split(problems.build("logistic", samples=20), 21)
