"""What an optimizer must still do, and what it must do besides, once it gossips: four real processes."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest
import torch
from torch import nn

from hf_decentral.errors import DecentralizedError, ParameterError, PeerLost
from hf_decentral.optim import decentralize, gossip
from hf_decentral.transport import Memory
from tests.optim.cases import pairs, ring
from tests.processes import outcomes, run


def _net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def _step(model: nn.Module, optimizer: Any, seed: int) -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed)).to(next(model.parameters()).dtype)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def _everything(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])


# --- attach -------------------------------------------------------------------------------------------------


def start_values(worker: int) -> list[torch.Tensor]:
    model = nn.Sequential(_net(seed=worker), nn.BatchNorm1d(3))
    model[1].running_mean.fill_(worker)
    model[1].num_batches_tracked.fill_(worker)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert decentralize(optimizer, pairs(4), model=model) is optimizer
    return [*(p.detach() for p in model.parameters()), *model.buffers()]


def test_everybody_begins_with_the_numbers_of_worker_0() -> None:
    values = run(4, start_values)
    for other in values[1:]:
        assert all(torch.equal(a, b) for a, b in zip(values[0], other, strict=True))
    assert values[3][-1] == 0


def different_models(worker: int, what: str) -> None:
    width = 9 if what == "shape" and worker == 2 else 8
    dtype = torch.float64 if what == "dtype" and worker == 1 else torch.float32
    model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2)).to(dtype)
    if what == "count" and worker == 3:
        model = nn.Sequential(model[0])
    topology = ring(4) if what == "topology" and worker == 2 else pairs(4)
    order = "xyz" if what == "problem" and worker == 2 else "awc"
    decentralize(torch.optim.SGD(model.parameters(), lr=0.1), topology, model=model, order=order)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("shape", "worker 2 has [9, 4] of torch.float32"),
        ("dtype", "worker 1 has [8, 4] of torch.float64"),
        ("count", "worker 3 has 2"),
        ("topology", "worker 2 has 'ring' with 4 workers"),
        ("problem", "order 'xyz'"),
    ],
)
def test_workers_that_disagree_hear_of_it_on_every_worker(what: str, said: str) -> None:
    for outcome in outcomes(4, different_models, what):
        assert said in outcome.error, outcome.error


# --- the step -----------------------------------------------------------------------------------------------


class Nested(torch.optim.SGD):
    """A user's own class whose step calls the one it inherits, and puts new storage under its parameters."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data.clone()
        return result


def conserved(worker: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean over the workers moves by the mean of the local updates, whatever the optimizer."""
    model = _net().double()
    makers = {
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
        "adamw foreach": lambda: torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True),
        "adamw fused": lambda: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True),
        "muon": lambda: torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.01),
        "nested": lambda: Nested(model.parameters(), lr=0.1),
    }
    optimizer = makers[kind]()
    torch.optim.SGD(_net().parameters(), lr=0.1)  # its class is patched with hooks, as Nested's parent is
    decentralize(optimizer, ring(4), model=model)
    for step in range(3):
        _step(model, optimizer, 10 * step + worker)
    before = _everything(model)
    gossip(optimizer).flush()
    return before, _everything(model)


@pytest.mark.parametrize("kind", ["sgd", "adamw foreach", "adamw fused", "muon", "nested"])
def test_the_exchange_keeps_the_mean(kind: str) -> None:
    found = run(4, conserved, kind)
    before, after = (torch.stack([f[k] for f in found]) for k in (0, 1))
    torch.testing.assert_close(before.mean(0), after.mean(0), rtol=0, atol=1e-12)
    assert not torch.equal(before[0], after[0])
    weights = ring(4)(3).matrix()
    torch.testing.assert_close(weights @ before, after, rtol=0, atol=1e-12)


def odd_parameters(worker: int) -> dict[str, Any]:
    """Tied and frozen weights, several dtypes and groups, no gradient on some workers, channels last."""
    tied = nn.Parameter(torch.full((3, 3), float(worker)))
    half = nn.Parameter(torch.full((5,), float(worker)).bfloat16())
    frozen = nn.Parameter(torch.full((2,), float(worker)), requires_grad=False)
    image = nn.Parameter(torch.arange(16.0).view(1, 2, 2, 4).to(memory_format=torch.channels_last) + worker)
    other = nn.Parameter(tied.data)  # another parameter on the same memory
    optimizer = torch.optim.SGD(
        [{"params": [tied, half, other]}, {"params": [frozen, image], "lr": 0.5}], lr=1.0
    )
    decentralize(optimizer, ring(4))
    if worker == 1:
        tied.grad = torch.ones(3, 3)
        image.grad = torch.ones_like(image)
    optimizer.step()
    gossip(optimizer).flush()
    same = tied.data_ptr() == other.data_ptr()
    late = nn.Parameter(torch.full((4,), float(worker)))
    optimizer.add_param_group({"params": [late]})
    late.grad = torch.full((4,), float(worker))
    optimizer.step()
    gossip(optimizer).flush()
    return {
        "tied": tied.detach(), "half": half.detach(), "frozen": frozen.detach(), "image": image.detach(),
        "late": late.detach(), "same": same, "bytes": gossip(optimizer).sent_bytes,
    }  # fmt: skip


def test_tied_frozen_late_and_gradless_parameters() -> None:
    found = run(4, odd_parameters)
    weights = ring(4)(0).matrix().float()
    step = torch.tensor([0.0, 1.0, 0.0, 0.0])
    # begin(0) averages equal numbers; step 0; flush averages; step 1 drifts on the same gradient; flush again
    tied = weights @ (weights @ -step - step)
    image = weights @ (weights @ (-0.5 * step) - 0.5 * step)
    late = weights @ -torch.arange(4.0)
    for w, f in enumerate(found):
        assert f["same"]
        assert torch.allclose(f["tied"], tied[w].expand(3, 3), atol=1e-6)
        assert torch.allclose(f["image"], torch.arange(16.0).view(1, 2, 2, 4) + image[w], atol=1e-5)
        assert torch.allclose(f["late"], late[w].expand(4), atol=1e-6)
        assert f["frozen"].eq(0).all()
        assert f["half"].eq(0).all()


# --- misuse -------------------------------------------------------------------------------------------------


def misuse(worker: int, what: str) -> str:
    model = _net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), pairs(4), model=model)
    _step(model, optimizer, worker)
    try:
        if what == "closure":
            optimizer.step(lambda: torch.tensor(0.0))
        if what == "write":
            with torch.no_grad():
                model[0].weight.mul_(2)
            _step(model, optimizer, worker)
        if what == "replace":
            model[0].weight.data = torch.zeros(8, 4)
            _step(model, optimizer, worker)
        if what == "averaged":
            with gossip(optimizer).averaged(model):
                optimizer.step()
        if what == "twice":
            decentralize(optimizer, pairs(4))
    except ParameterError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("closure", "without a closure"),
        ("write", "'0.weight' was changed while"),
        ("replace", "'0.weight' was changed while"),
        ("averaged", "inside averaged"),
        ("twice", "gossips already"),
    ],
)
def test_misuse_is_told(what: str, said: str) -> None:
    for text in run(4, misuse, what):
        assert said in text


def test_what_no_worker_needs_a_neighbour_to_see() -> None:
    weight = nn.Parameter(torch.zeros(4))
    with pytest.raises(ParameterError, match=r"Expected a torch\.optim\.Optimizer"):
        decentralize(nn.Linear(1, 1), pairs(1))  # type: ignore[type-var]
    with pytest.raises(ParameterError, match="does not gossip"):
        gossip(torch.optim.SGD([weight], lr=0.1))
    with pytest.raises(DecentralizedError, match="Did you mean 'awc'"):
        decentralize(torch.optim.SGD([weight], lr=0.1), pairs(1), order="awcc")
    with pytest.raises(DecentralizedError, match="comm_timeout"):
        decentralize(torch.optim.SGD([weight], lr=0.1), pairs(1), comm_timeout=0)
    overlapping = [nn.Parameter(weight.data[:3]), nn.Parameter(weight.data[1:])]
    with pytest.raises(ParameterError, match="share a part"):
        decentralize(torch.optim.SGD(overlapping, lr=0.1), pairs(1))
    with pytest.raises(ParameterError, match="not initialized"):
        decentralize(torch.optim.SGD(nn.LazyLinear(2).parameters(), lr=0.1), pairs(1))


# --- one worker, checkpoints, guards ------------------------------------------------------------------------


def test_one_worker_is_the_optimizer_itself() -> None:
    ours, plain = _net(), _net()
    gossiping = decentralize(torch.optim.Adam(ours.parameters(), lr=0.1), pairs(1), model=ours)
    alone = torch.optim.Adam(plain.parameters(), lr=0.1)
    for step in range(3):
        _step(ours, gossiping, step)
        _step(plain, alone, step)
    assert torch.equal(_everything(ours), _everything(plain))
    handle = gossip(gossiping)
    with handle.averaged(ours) as model:
        assert model is ours
    assert (handle.distance(), handle.sent_bytes, handle.step) == (0.0, 0.0, 3)
    gossiping.step(lambda: 0.0)  # nobody waits for this worker


def test_a_copy_does_not_gossip() -> None:
    model = _net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), pairs(1))
    with pytest.raises(ParameterError, match="deepcopy"):
        gossip(copy.deepcopy(optimizer))


def resumed(worker: int, stop: bool, flush: bool) -> torch.Tensor:
    model = _net()
    optimizer = decentralize(torch.optim.Adam(model.parameters(), lr=0.05), ring(4), model=model)
    for step in range(6):
        if step == 3 and flush:
            gossip(optimizer).flush()
        if step == 3 and stop:
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            saved = torch.load(file)  # weights_only: what is saved must be plain
            model = _net(seed=9)
            optimizer = decentralize(torch.optim.Adam(model.parameters(), lr=0.05), ring(4), model=model)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        _step(model, optimizer, 10 * step + worker)
    return _everything(model)


@pytest.mark.parametrize("flush", [False, True])
def test_resume_is_bitwise(flush: bool) -> None:
    through = run(4, resumed, False, flush)
    stopped = run(4, resumed, True, flush)
    assert all(torch.equal(a, b) for a, b in zip(through, stopped, strict=True))


def with_a_nan(worker: int) -> tuple[int, bool, int]:
    model = _net()
    optimizer = decentralize(torch.optim.Adam(model.parameters(), lr=0.05), ring(4), model=model)
    for step in range(4):
        x = torch.full((2, 4), math.nan if (worker, step) == (2, 1) else 1.0)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    return gossip(optimizer).skipped, bool(_everything(model).isfinite().all()), gossip(optimizer).step


def test_a_nan_stays_where_it_arose() -> None:
    assert run(4, with_a_nan) == [(0, True, 4), (0, True, 4), (1, True, 4), (0, True, 4)]


def with_a_scaler(worker: int) -> tuple[int, float, torch.Tensor]:
    model = _net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), ring(4), model=model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum() * (math.inf if (worker, step) == (1, 2) else 1.0)
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    gossip(optimizer).flush()
    return gossip(optimizer).step, optimizer.param_groups[0]["lr"], _everything(model)


def test_an_overflow_on_one_worker_keeps_rounds_and_rates_in_step() -> None:
    found = run(4, with_a_scaler)
    assert [f[:2] for f in found] == [(4, 0.1 * 0.5**4)] * 4
    assert all(f[2].isfinite().all() for f in found)


def consensus(worker: int) -> tuple[float, float, list[torch.Tensor], list[torch.Tensor]]:
    model = nn.Sequential(_net(), nn.BatchNorm1d(3))
    model[1].register_buffer("wide", torch.full((2,), float(worker), dtype=torch.float64))
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), ring(4), model=model)
    for step in range(3):
        _step(model, optimizer, 10 * step + worker)
    own = [t.clone() for t in model.state_dict().values()]
    model[1].wide = model[1].wide + worker  # a new tensor in its place: looked up by name
    own[-1] = model[1].wide.clone()
    distance = gossip(optimizer).distance()
    with gossip(optimizer).averaged(model):
        mean = [t.clone() for t in model.state_dict().values()]
    again = list(model.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(own, again, strict=True))
    _step(model, optimizer, worker)  # what was on the wire is still combined
    return distance, gossip(optimizer).distance(), own, mean


def test_the_consensus_is_the_mean_and_goes_away_again() -> None:
    found = run(4, consensus)
    keys = [*nn.Sequential(_net(), nn.BatchNorm1d(3)).state_dict(), "wide"]
    squared = torch.zeros(4, dtype=torch.float64)
    for k, key in enumerate(keys):
        own = torch.stack([f[2][k].double() for f in found])
        if "num_batches" in key:
            assert found[0][3][k] == 3
            continue
        for f in found:
            torch.testing.assert_close(f[3][k].double(), own.mean(0), rtol=1e-6, atol=1e-7)
        if "running" not in key and "wide" not in key:
            squared += (own - own.mean(0)).square().flatten(1).sum(1)
    assert found[0][0] == pytest.approx(math.sqrt(squared.mean()), rel=1e-5)
    assert len({f[1] for f in found}) == 1


# --- parameters that come, go, or are tied ------------------------------------------------------------------


def alone_in_a_talk(worker: int, topology: str) -> str:
    model = _net()
    optimizer = decentralize(
        torch.optim.SGD(model.parameters(), lr=0.1), topology, model=model, comm_timeout=4
    )
    _step(model, optimizer, worker)
    try:
        if worker == 0:
            gossip(optimizer).distance()
        for step in range(10):
            _step(model, optimizer, 10 * step + worker)
        gossip(optimizer).flush()
    except PeerLost as lost:
        return str(lost)
    return ""


@pytest.mark.parametrize("topology", ["complete", "ring"])
def test_a_mean_that_one_worker_asks_for_alone_is_never_taken_for_a_round(topology: str) -> None:
    for outcome in outcomes(3, alone_in_a_talk, topology):
        assert outcome.exit_code == 0, outcome.error
        # The one whose deadline passes first leaves, and whoever waits a moment longer may hear that it left.
        assert "did not answer" in outcome.value or "still waits for" in outcome.value


def joins(worker: int, order: str, when: int, alone: bool) -> float:
    model = _net()
    optimizer = decentralize(
        torch.optim.SGD(model.parameters(), lr=0.1), "ring", model=model, order=order, comm_timeout=4
    )
    late = nn.Parameter(torch.full((3,), float(worker + 5)))
    for step in range(3):
        if step == when and (worker == 1 or not alone):
            optimizer.add_param_group({"params": [late]})
        _step(model, optimizer, worker)
    gossip(optimizer).flush()
    return float(late[0])


@pytest.mark.parametrize("order", ["awc", "atc", "cta"])
@pytest.mark.parametrize("when", [0, 1])
def test_a_parameter_that_joins_gets_the_numbers_of_worker_0(order: str, when: int) -> None:
    assert run(4, joins, order, when, False) == [5.0] * 4


def test_a_parameter_that_joins_on_one_worker_ends_all() -> None:
    for outcome in outcomes(3, joins, "awc", 0, True):
        assert "MismatchError" in outcome.error
    for outcome in outcomes(3, joins, "awc", 1, True):
        assert "PeerLost" in outcome.error


def freezes(worker: int, everything: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    model = _net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), "ring", model=model)
    for step in range(4):
        _step(model, optimizer, 10 * step + worker)
    (model if everything else model[0]).requires_grad_(False)
    if not everything:
        _step(model, optimizer, worker)
    with gossip(optimizer).averaged(model):
        return [p.detach().clone() for p in model.parameters()], [p.grad for p in model.parameters()]


@pytest.mark.parametrize("everything", [False, True])
def test_a_parameter_that_is_frozen_stays_one_model(everything: bool) -> None:
    found = run(4, freezes, everything)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0][0], other[0], strict=True))


def different_buffers(worker: int, what: str) -> None:
    model = _net()
    model.register_buffer("seen", torch.zeros(3 + (what == "buffer" and worker == 2)))
    model.add_module("tail", nn.Linear(2, 3 + (what == "frozen" and worker == 2)).requires_grad_(False))
    decentralize(torch.optim.SGD(model[0].parameters(), lr=0.1), pairs(4), model=model)


@pytest.mark.parametrize(("what", "said"), [("buffer", "'seen'"), ("frozen", "'tail.weight'")])
def test_what_is_only_made_equal_must_fit_too(what: str, said: str) -> None:
    for outcome in outcomes(4, different_buffers, what):
        assert "worker 2 has" in outcome.error
        assert said in outcome.error


def evaluates_first(worker: int, order: str) -> bool:
    model = _net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), "ring", model=model, order=order)
    with torch.inference_mode(), gossip(optimizer).averaged(model):
        model(torch.ones(2, 4))
    with torch.inference_mode():
        model(torch.ones(2, 4))
    for step in range(3):
        _step(model, optimizer, 10 * step + worker)
    return bool(_everything(model).isfinite().all())


@pytest.mark.parametrize("order", ["awc", "cta"])
def test_an_evaluation_in_inference_mode_may_come_first(order: str) -> None:
    assert all(run(3, evaluates_first, order))


def nested(worker: int) -> str:
    model = _net()
    optimizer = decentralize(torch.optim.SGD(model.parameters(), lr=0.1), "ring", model=model)
    with gossip(optimizer).averaged(model):
        with gossip(optimizer).averaged(model):
            pass
        try:
            optimizer.step()
        except ParameterError as error:
            return str(error)
    return ""


def test_a_step_between_two_averaged_contexts_is_refused() -> None:
    assert all("inside averaged" in text for text in run(3, nested))


def tied_later(worker: int) -> bool:
    one, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
    optimizer = decentralize(torch.optim.SGD([one, other], lr=0.1), "ring")
    optimizer.step()
    gossip(optimizer).flush()
    other.data = one.data
    for _ in range(2):
        one.grad = torch.full((3,), float(worker))
        optimizer.step()
    return torch.equal(one, other)


def test_weights_that_are_tied_later_stay_tied() -> None:
    assert all(run(3, tied_later))


def test_a_transposed_view_is_refused_and_no_parameters_are_no_distance() -> None:
    weight = nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(ParameterError, match="share a part"):
        decentralize(torch.optim.SGD([weight, nn.Parameter(weight.data.t())], lr=0.1), "ring")
    frozen = [nn.Parameter(torch.zeros(2, 3), requires_grad=False)]
    optimizer = decentralize(torch.optim.SGD(frozen, lr=0.1), "ring", transport=Memory(2))
    assert gossip(optimizer).distance() == 0.0


def test_an_optimizer_whose_parameters_were_taken_over_steps_no_more() -> None:
    weight = nn.Parameter(torch.zeros(2, 3))
    first = decentralize(torch.optim.SGD([weight], lr=0.1), "ring", transport=Memory(2))
    decentralize(torch.optim.Adam([weight], lr=0.1), "ring", transport=Memory(2))
    with pytest.raises(ParameterError, match="another one trains"):
        first.step()
