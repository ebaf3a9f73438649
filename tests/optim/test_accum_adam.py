"""AccumAdam and AccumAdamW: the published rule, and the manners of a torch optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hf_decentral.errors import ParameterError, SettingsError
from hf_decentral.optim.accum_adam import AccumAdam, AccumAdamW

KINDS = (AccumAdam, AccumAdamW)
SHAPES = ((3, 4), (5,), ())


def parameters(dtype: torch.dtype = torch.float64, seed: int = 0) -> list[torch.nn.Parameter]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=draw).to(dtype)) for shape in SHAPES]


def gradients(there: list[torch.nn.Parameter], step: int) -> None:
    draw = torch.Generator().manual_seed(100 + step)
    for parameter in there:
        parameter.grad = torch.randn(parameter.shape, generator=draw).to(parameter.dtype)


def trained(
    make: Any, steps: int, dtype: torch.dtype = torch.float64, **settings: Any
) -> list[torch.nn.Parameter]:
    there = parameters(dtype)
    optimizer = make(there, **settings)
    for step in range(steps):
        gradients(there, step)
        optimizer.step()
    return there


def furthest(left: list[torch.nn.Parameter], right: list[torch.nn.Parameter]) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("horizon", ["windows", "steps"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(AccumAdam, torch.optim.Adam), (AccumAdamW, torch.optim.AdamW)],
    ids=["adam", "adamw"],
)
def test_a_window_of_one_is_torchs_own(ours, theirs, horizon, weight_decay, foreach):
    common = {"lr": 0.01, "weight_decay": weight_decay}
    mine = trained(ours, 25, accum=1, horizon=horizon, foreach=foreach, **common)
    assert furthest(mine, trained(theirs, 25, **common)) < 1e-12


@pytest.mark.parametrize("foreach", [False, True])
def test_golden_trace(foreach):
    # Worked out by hand from the rule; s = 2, lr = 0.1, x0 = 0.
    golden = [-0.099999999000, 0.000000000500, -0.062391865857, -0.067655023646, -0.072886664961]
    x = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = AccumAdam([x], lr=0.1, accum=2, foreach=foreach)
    for gradient, expected in zip([1.0, -2.0, 3.0, 0.5, -1.0], golden, strict=True):
        x.grad = torch.full_like(x, gradient)
        optimizer.step()
        assert x.item() == pytest.approx(expected, abs=5e-13)


def by_hand(start: torch.Tensor, steps: int, kind: type, accum: int, power: int, lr: float, decay: float):
    """The rule as it stands in the paper's order, in plain arithmetic."""
    b1, b2 = 0.9**power, 0.99**power
    x = start.clone()
    m, v, a = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for step in range(1, steps + 1):
        draw = torch.Generator().manual_seed(100 + step - 1)
        g = torch.randn(SHAPES[0], generator=draw).double()
        k = -(-step // accum)
        if kind is AccumAdam:
            g = g + decay * x
        else:
            x = x * (1 - lr * decay)
        a = a + g / accum
        tilde1, tilde2 = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        x = x - lr * (tilde1 / (1 - b1**k)) / ((tilde2 / (1 - b2**k)).sqrt() + 1e-8)
        if step % accum == 0:
            m, v, a = b1 * m + (1 - b1) * a, b2 * v + (1 - b2) * a * a, torch.zeros_like(a)
    return x


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(("horizon", "power"), [("windows", 1), ("steps", 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_published_rule(kind, horizon, power, foreach):
    settings = {"lr": 0.02, "betas": (0.9, 0.99), "weight_decay": 0.3}
    mine = trained(kind, 11, accum=3, horizon=horizon, foreach=foreach, **settings)
    expected = by_hand(parameters()[0].data, 11, kind, 3, power, 0.02, 0.3)
    assert float((mine[0] - expected).detach().abs().max()) < 1e-12


@pytest.mark.parametrize("accum", [1, 3, 4])
@pytest.mark.parametrize("horizon", ["windows", "steps"])
def test_a_constant_gradient_moves_by_the_rate(accum, horizon):
    x = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    gradient = torch.tensor([2.0, -0.5], dtype=torch.float64)
    optimizer = AccumAdam([x], lr=0.1, accum=accum, horizon=horizon)
    for step in range(1, 14):
        x.grad = gradient.clone()
        optimizer.step()
        assert torch.allclose(x, -0.1 * step * gradient / (gradient.abs() + 1e-8), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_foreach_and_loop_agree_bitwise(kind, dtype):
    loop, together = (
        trained(kind, 9, dtype, accum=4, weight_decay=0.1, foreach=foreach) for foreach in (False, True)
    )
    assert furthest(loop, together) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_path_trains(kind):
    assert furthest(trained(kind, 9, accum=4), trained(kind, 9, accum=4, foreach=False)) == 0


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_resume_in_the_middle_of_a_window_is_bitwise(kind, dtype, foreach, tmp_path: Path):
    whole = trained(kind, 13, dtype, accum=4, foreach=foreach)
    there = parameters(dtype)
    optimizer = kind(there, accum=4, foreach=foreach)
    for step in range(6):  # 6 = one window and a half
        gradients(there, step)
        optimizer.step()
    torch.save({"x": [x.data for x in there], "optimizer": optimizer.state_dict()}, tmp_path / "half.pt")

    again = parameters(dtype, seed=9)
    resumed = kind(again, lr=0.5, accum=2)  # the loaded settings are the ones that count
    saved = torch.load(tmp_path / "half.pt", weights_only=True)
    for x, value in zip(again, saved["x"], strict=True):
        x.data.copy_(value)
    resumed.load_state_dict(saved["optimizer"])
    for step in range(6, 13):
        gradients(again, step)
        resumed.step()
    assert furthest(whole, again) == 0
    assert all(int(resumed.state[x]["step"]) == 13 for x in again)


def test_state_keeps_the_dtype_and_shape_of_its_parameter():
    there = parameters(torch.bfloat16)
    optimizer = AccumAdamW(there)
    gradients(there, 0)
    optimizer.step()
    for x in there:
        for name in ("exp_avg", "exp_avg_sq", "accum_grad"):
            assert optimizer.state[x][name].dtype == torch.bfloat16
            assert optimizer.state[x][name].shape == x.shape


@pytest.mark.parametrize("foreach", [False, True])
def test_without_a_gradient_a_parameter_and_its_window_stand_still(foreach):
    there = parameters()
    optimizer = AccumAdamW(there, accum=2, foreach=foreach)
    before = there[1].detach().clone()
    for step in range(3):
        gradients(there, step)
        there[1].grad = None
        optimizer.step()
    assert torch.equal(there[1], before)
    assert there[1] not in optimizer.state
    gradients(there, 3)
    optimizer.step()
    assert [int(optimizer.state[x]["step"]) for x in there] == [4, 1, 4]
    alone = [torch.nn.Parameter(before.clone())]
    alone[0].grad = there[1].grad
    AccumAdamW(alone, accum=2, foreach=foreach).step()
    assert torch.equal(alone[0], there[1])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_stacked_workers_step_like_single_ones(kind, foreach):
    workers = [parameters(seed=worker)[:1] for worker in range(3)]
    stacked = [torch.nn.Parameter(torch.stack([there[0].data for there in workers]))]
    optimizers = [kind(there, accum=2, foreach=foreach) for there in [*workers, stacked]]
    for step in range(5):
        for worker, there in enumerate(workers):
            gradients(there, 10 * worker + step)
        stacked[0].grad = torch.stack([there[0].grad for there in workers])
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(stacked[0], torch.stack([there[0] for there in workers]))


def test_groups_have_settings_of_their_own():
    there = parameters()
    groups = [{"params": there[:1], "accum": 1, "weight_decay": 0.0}, {"params": there[1:], "lr": 0.0}]
    optimizer = AccumAdamW(groups, lr=0.01, accum=4)
    start = [x.detach().clone() for x in there]
    for step in range(5):
        gradients(there, step)
        optimizer.step()
    expected = trained(torch.optim.AdamW, 5, lr=0.01, weight_decay=0.0)
    assert float((there[0] - expected[0]).detach().abs().max()) < 1e-12
    assert torch.equal(there[1], start[1])


def test_schedulers_and_closures():
    there = parameters()
    optimizer = AccumAdam(there, lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step == 0 else 0.0)

    def closure():
        optimizer.zero_grad()
        loss = sum((x**2).sum() for x in there)
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    scheduler.step()
    before = [x.detach().clone() for x in there]
    optimizer.step(closure)
    assert all(torch.equal(a, b) for a, b in zip(there, before, strict=True))


def test_a_rate_in_a_tensor():
    exact = trained(AccumAdamW, 5, lr=0.125)
    assert furthest(exact, trained(AccumAdamW, 5, lr=torch.tensor(0.125))) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": -1.0},
        {"lr": float("nan")},
        {"eps": -1e-8},
        {"weight_decay": -0.1},
        {"betas": (1.0, 0.999)},
        {"betas": (0.9, -0.1)},
        {"betas": (0.9,)},
        {"accum": 0},
        {"accum": 1.5},
        {"accum": True},
        {"horizon": "window"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_refused_at_birth(kind, settings):
    with pytest.raises(SettingsError, match="(?i)" + next(iter(settings))):
        kind(parameters(), **settings)


def test_a_refused_group_leaves_nothing_behind():
    optimizer = AccumAdam(parameters())
    with pytest.raises(SettingsError, match="(?i)accum"):
        optimizer.add_param_group({"params": parameters(), "accum": -3})
    assert len(optimizer.param_groups) == 1


def test_sparse_and_complex_are_refused():
    with pytest.raises(ParameterError, match="complex"):
        AccumAdam([torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))])
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ParameterError, match="sparse=False"):
        AccumAdamW(table.parameters()).step()


def test_defaults_are_those_of_the_paper():
    assert AccumAdam(parameters()).defaults["weight_decay"] == 0.0
    assert AccumAdamW(parameters()).defaults["weight_decay"] == 0.1
    assert AccumAdamW(parameters()).defaults["accum"] == 4
