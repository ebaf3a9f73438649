"""The problems that are built in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hf_decentral.errors import DataError, SettingsError
from hf_decentral.simulator import Problem, problems
from hf_decentral.simulator.mnist import VARIABLE

DIGITS = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist" / "mnist10k.npz"
needs_digits = pytest.mark.skipif(not DIGITS.is_file(), reason="../shared/data is absent")


def small_digits(path: Path, **changed: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 255, (40, 28, 28), dtype=np.uint8),
        "y_train": rng.integers(0, 10, 40),
        "x_test": rng.integers(0, 255, (20, 28, 28), dtype=np.uint8),
        "y_test": rng.integers(0, 10, 20),
    }
    np.savez(path, **{**arrays, **changed})
    return path


def loss_at(problem: Problem, part: tuple[torch.Tensor, torch.Tensor]) -> float:
    with torch.no_grad():
        return float(problem.loss(problem.model(part[0]), part[1]))


@pytest.mark.parametrize("unequal", [1.0, 9.0])
def test_the_few_validation_points_of_a_quadratic_are_its_samples(unequal: float):
    problem = problems.build("quadratic", 30, 4, unequal=unequal, samples=500, dtype=torch.float64)
    for seed in range(3):
        x = torch.randn(30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        problem.model.x.data.copy_(x)
        assert loss_at(problem, problem.valid) == pytest.approx(loss_at(problem, problem.train), rel=1e-12)


@pytest.mark.parametrize("unequal", [1.0, 9.0])
def test_the_optimum_of_a_quadratic_is_the_smallest_loss(unequal: float):
    problem = problems.build("quadratic", 30, 4, unequal=unequal, samples=500, dtype=torch.float64)
    z, weights = problem.train
    problem.model.x.data.copy_((weights @ z / weights.sum()) @ problem.model.basis)
    assert loss_at(problem, problem.train) == pytest.approx(problem.optimum, rel=1e-12)
    problem.loss(problem.model(problem.train[0]), problem.train[1]).backward()
    assert problem.model.x.grad.abs().max() < 1e-12


def test_groups_of_a_quadratic_differ_in_target_and_curvature():
    problem = problems.build("quadratic", unequal=4.0)
    z, weights = problem.train
    first, last = (problem.groups == 0), (problem.groups == 9)
    assert (z[first].mean(0) - z[last].mean(0)).norm() > 1
    assert weights[last].mean() / weights[first].mean() == pytest.approx(4.0, rel=1e-5)


@needs_digits
@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-cnn"])
def test_digits_are_normal_and_classes_are_told(name: str):
    problem = problems.build(name)
    inputs, targets = problem.train
    assert inputs.shape == (8000, 1, 28, 28)
    assert abs(float(inputs.mean())) < 1e-4
    assert float(inputs.std()) == pytest.approx(1, abs=1e-3)
    assert sorted(set(targets.tolist())) == list(range(10))
    assert problem.model(inputs[:3]).shape == (3, 10)


def test_a_file_of_digits_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = small_digits(tmp_path / "own.npz")
    assert problems.build("mnist-mlp", data=path).samples == 40
    monkeypatch.setenv(VARIABLE, str(path))
    assert problems.build("mnist-cnn", dim=2).samples == 40


def test_digits_that_are_not_there_or_none(tmp_path: Path):
    with pytest.raises(DataError, match=VARIABLE):
        problems.build("mnist-mlp", data=tmp_path / "none.npz")
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match="holds no digits"):
        problems.build("mnist-mlp", data=broken)
    np.savez(tmp_path / "other.npz", x_train=np.zeros(3))
    with pytest.raises(DataError, match="no array 'y_train'"):
        problems.build("mnist-mlp", data=tmp_path / "other.npz")
    flat = small_digits(tmp_path / "flat.npz", x_test=np.zeros((20, 784), dtype=np.uint8))
    with pytest.raises(DataError, match=r"shape \[20, 784\]"):
        problems.build("mnist-mlp", data=flat)


def test_the_character_model_sees_nothing_of_what_comes():
    problem = problems.build("char-gpt")
    tokens = problem.valid[0][:1]
    changed = tokens.clone()
    changed[0, 20:] = (changed[0, 20:] + 1) % 10
    before, after = problem.model(tokens), problem.model(changed)
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20:], after[:, 20:])


def test_the_character_model_is_trained_on_what_follows_and_judged_on_text_held_out(tmp_path: Path):
    problem = problems.build("char-gpt", length=8)
    inputs, targets = problem.train
    assert torch.equal(inputs[5, 1:], targets[5, :-1])
    assert problem.valid[0].shape == (128, 8)
    assert inputs.untyped_storage().nbytes() < 2 * 8 * len(inputs)  # views of one text
    (tmp_path / "short.txt").write_text("too short " * 20)
    with pytest.raises(DataError, match="200 characters|199 characters"):
        problems.build("char-gpt", data=tmp_path / "short.txt")


@pytest.mark.parametrize("name", ["quadratic", "logistic", "char-gpt"])
def test_the_seed_alone_decides(name: str):
    one, same, other = (problems.build(name, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(one.model.parameters(), same.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(one.train[0], same.train[0])
    differs = [not torch.equal(a, b) for a, b in zip(one.train, other.train, strict=True)]
    differs += [
        not torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True)
    ]
    assert any(differs)


def test_names_and_settings_that_there_are_not():
    assert problems.names() == ["char-gpt", "logistic", "mnist-cnn", "mnist-mlp", "quadratic"]
    with pytest.raises(SettingsError, match="Did you mean 'quadratic'"):
        problems.build("quadratik")
    with pytest.raises(SettingsError, match="'conditon'"):
        problems.build("quadratic", conditon=3)
    with pytest.raises(SettingsError, match="condition=0"):
        problems.build("quadratic", condition=0.5)
    with pytest.raises(SettingsError, match="multiple of heads=2"):
        problems.build("char-gpt", dim=33)
    with pytest.raises(SettingsError, match="classes=1"):
        problems.build("logistic", classes=1)


def test_a_problem_whose_parts_do_not_fit():
    model, loss, data = torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, torch.zeros(4, 1)
    with pytest.raises(DataError, match="4 inputs and 3 targets"):
        Problem("own", model, loss, (data, data[:3]), (data, data))
    with pytest.raises(DataError, match="0 inputs and 0 targets"):
        Problem("own", model, loss, (data, data), (data[:0], data[:0]))
    with pytest.raises(DataError, match="groups"):
        Problem("own", model, loss, (data, data), (data, data), groups=torch.zeros(3))
