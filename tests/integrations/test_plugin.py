"""A training loop under Accelerate, with the plugin attached: what changes, and what must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader

from hf_decentral.errors import DecentralizedError, LaunchError, ParameterError, PeerLost, SettingsError
from hf_decentral.integrations.plugin import DecentralizedPlugin
from hf_decentral.optim import decentralize, gossip
from tests.integrations.loops import WIDTH, Run, accelerator, data, mean, model, same
from tests.processes import outcomes, run

pytestmark = pytest.mark.processes


def _replicas(rank: int, folder: str) -> dict[str, Any]:
    r = Run("ring")
    first = r.state()
    r.train(7)
    distance, mine = r.plugin.distance(), r.state()
    with r.plugin.averaged(r.model) as held:
        assert held is r.model
        consensus = r.state()
    restored = same(mine, r.state())
    r.accelerator.save_model(r.model, f"{folder}/consensus")
    r.accelerator.save_model(r.model, f"{folder}/own", average=False)
    whole = r.accelerator.get_state_dict(r.model)
    return {
        "kind": type(r.model).__name__,
        "first": first,
        "mine": mine,
        "distance": distance,
        "consensus": consensus,
        "restored": restored,
        "whole": whole,
        "lr": r.optimizer.param_groups[0]["lr"],
        "epoch": r.scheduler.scheduler.last_epoch,
        "sent": r.plugin.sent_bytes,
        "steps": gossip(r.optimizer).step,
        "own_dict": same(mine, r.accelerator.get_state_dict(r.model, average=False)),
        "gathered": r.accelerator.gather_for_metrics(torch.tensor([rank])).tolist(),
    }


def test_four_replicas_gossip_and_their_consensus_is_saved(tmp_path: Path) -> None:
    results = run(4, _replicas, str(tmp_path))
    assert {r["kind"] for r in results} == {"Sequential"}  # no DistributedDataParallel around it
    assert all(same(results[0]["first"], r["first"]) for r in results)  # different seeds, made equal
    assert not same(results[0]["mine"], results[1]["mine"])
    expected = mean([r["mine"] for r in results])
    for r in results:
        assert r["restored"] and r["own_dict"] and r["distance"] > 0 and r["gathered"] == [0, 1, 2, 3]
        assert (r["lr"], r["epoch"], r["steps"]) == (
            results[0]["lr"],
            28,
            7,
        )  # 4 for each of 7 steps, as with DDP
        for name, value in expected.items():  # BatchNorm's statistics among them
            torch.testing.assert_close(r["consensus"][name], value)
            torch.testing.assert_close(r["whole"][name], value)
        assert torch.equal(r["consensus"]["1.num_batches_tracked"], r["mine"]["1.num_batches_tracked"])
    saved = load_file(tmp_path / "consensus" / "model.safetensors")
    tied = {"3.weight", "4.weight"}
    assert set(saved) | tied == set(results[0]["mine"]) and len(set(saved) & tied) == 1
    for name in saved.keys() & expected.keys():
        torch.testing.assert_close(saved[name], expected[name])
    own = load_file(tmp_path / "own" / "model.safetensors")
    assert all(torch.equal(own[name], results[0]["mine"][name]) for name in own)


def _baseline(rank: int) -> dict[str, Any]:
    r = Run("allreduce")
    r.train(6)
    with r.plugin.averaged(r.model):
        inside = r.state()
    return {
        "kind": type(r.model).__name__,
        "state": r.state(),
        "same": same(inside, r.state()),
        "distance": r.plugin.distance(),
        "sent": r.plugin.sent_bytes,
        "trained": sum(p.numel() for p in r.model.parameters() if p.requires_grad),
    }


def test_allreduce_is_stock_accelerate() -> None:
    results = run(2, _baseline)
    for r in results:
        assert r["kind"] == "DistributedDataParallel" and r["distance"] == 0.0 and r["same"]
        assert r["sent"] == 6 * 4 * r["trained"]  # 2 (n - 1) / n = 1 for two workers
        assert torch.equal(r["state"]["0.weight"], results[0]["state"]["0.weight"])


def _alone(topology: str) -> tuple[dict[str, torch.Tensor], float, float]:
    r = Run(topology)
    r.train(10, noisy=False)
    return r.state(), r.plugin.distance(), r.plugin.sent_bytes


def test_one_worker_trains_as_without_the_plugin() -> None:
    plain, _, _ = _alone("allreduce")
    for topology in ("ring", "aer", "complete"):
        state, distance, sent = _alone(topology)
        assert same(plain, state) and distance == 0.0 and sent == 0.0


def _accumulated(rank: int, mixed: str, accumulation: int) -> dict[str, Any]:
    r = Run("complete", lr=0.03, gradient_accumulation_steps=accumulation, mixed_precision=mixed)
    losses = r.train(80)
    syncs = r.scheduler.scheduler.last_epoch
    return {
        "steps": gossip(r.optimizer).step,
        "before": sum(losses[:8]),
        "after": sum(losses[-8:]),
        "syncs": syncs,
    }


@pytest.mark.parametrize("mixed", ["no", "bf16"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_one_round_for_each_optimizer_step(mixed: str, accumulation: int) -> None:
    """8 batches an epoch, and the last one closes its window: 3 + 3 + 2 (A1, A2, A12)."""
    results = run(2, _accumulated, mixed, accumulation)
    assert results[0]["steps"] == results[1]["steps"] and results[0]["syncs"] == results[1]["syncs"]
    assert results[0]["syncs"] == 2 * results[0]["steps"]
    assert all(r["after"] < r["before"] for r in results)


def _overflow(rank: int, accumulation: int) -> dict[str, Any]:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=1000)
    r = Run("ring", scaler=scaler, gradient_accumulation_steps=accumulation)
    rounds, rates = [], []
    for k, (x, y) in enumerate(r.loader):
        if k == 3 and rank == 1:
            x = x.clone()
            x[0, 0] = float("inf")
        before = r.optimizer.param_groups[0]["lr"]
        r.step(x, y)
        rounds.append(gossip(r.optimizer).step)
        rates.append(before)
    finite = all(bool(p.isfinite().all()) for p in r.model.parameters())
    return {
        "rounds": rounds,
        "rates": rates,
        "finite": finite,
        "scale": scaler.get_scale(),
        "distance": r.plugin.distance(),
    }


@pytest.mark.parametrize("accumulation", [1, 4])
def test_an_overflow_on_one_worker_keeps_rounds_and_rates_in_step(accumulation: int) -> None:
    """GradScaler skips a step where it overflows; the exchange of that step must go on (A10, A12)."""
    results = run(3, _overflow, accumulation)
    assert all(r["rounds"] == results[0]["rounds"] and r["rates"] == results[0]["rates"] for r in results)
    assert all(r["finite"] for r in results)
    assert [r["scale"] for r in results] == [16.0, 8.0, 16.0]


def _gan(rank: int) -> dict[str, Any]:
    accelerate = accelerator(gradient_accumulation_steps=2)
    plugin = DecentralizedPlugin(topology="ring").attach(accelerate)
    torch.manual_seed(rank)
    maker, judge = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 1)
    own = [torch.optim.Adam(net.parameters(), lr=0.01) for net in (maker, judge)]
    maker, judge, opt_maker, opt_judge, loader = accelerate.prepare(
        maker, judge, *own, DataLoader(data(), batch_size=4)
    )
    for x, _ in loader:
        with accelerate.accumulate(maker, judge):
            made = maker(torch.randn(len(x), 3))
            accelerate.backward(judge(x).mean() - judge(made.detach()).mean())
            opt_judge.step()
            opt_judge.zero_grad()
            accelerate.backward(judge(made).mean())
            opt_maker.step()
            opt_maker.zero_grad()
    mine = [p.detach().clone() for net in (maker, judge) for p in net.parameters()]
    with plugin.averaged(maker), plugin.averaged(judge):
        consensus = [p.detach().clone() for net in (maker, judge) for p in net.parameters()]
    steps = [gossip(o).step for o in (opt_maker, opt_judge)]
    return {"steps": steps, "mine": mine, "consensus": consensus, "handles": len(plugin.handles)}


def test_two_models_gossip_each_with_its_own_optimizer() -> None:
    """A GAN in one accumulate() (A8)."""
    results = run(3, _gan)
    for r in results:
        assert r["steps"] == results[0]["steps"] and r["steps"][0] > 0 and r["handles"] == 2
        for k, value in enumerate(r["consensus"]):
            torch.testing.assert_close(value, torch.stack([q["mine"][k] for q in results]).mean(0))


def _prepared_apart(rank: int) -> list[int]:
    steps = []
    for order in ("model first", "optimizer first", "together, optimizer first"):
        accelerate = accelerator()
        DecentralizedPlugin(topology="ring").attach(accelerate)
        net: Any = model(rank)
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        if order == "model first":
            net = accelerate.prepare(net)
            optimizer = accelerate.prepare(optimizer)
        elif order == "optimizer first":
            optimizer = accelerate.prepare_optimizer(optimizer)
            net = accelerate.prepare_model(net)
        else:
            optimizer, net = accelerate.prepare(optimizer, net)
        accelerate.backward(net(torch.randn(4, WIDTH)).sum())
        optimizer.step()
        steps.append(gossip(optimizer).step)
    return steps


def test_models_and_optimizers_may_be_prepared_in_any_order() -> None:
    assert run(2, _prepared_apart) == [[1, 1, 1], [1, 1, 1]]


def _compiled(rank: int) -> dict[str, Any]:
    r = Run("ring", dynamo_backend="eager")
    r.train(5)
    with r.plugin.averaged(r.model):
        r.model(torch.zeros(4, WIDTH))
    names = list(r.accelerator.get_state_dict(r.model))
    return {"steps": gossip(r.optimizer).step, "names": names, "kind": type(r.model).__name__}


def test_a_compiled_model_keeps_its_names() -> None:
    for r in run(2, _compiled):
        assert r["kind"] == "OptimizedModule" and r["steps"] == 5
        assert "0.weight" in r["names"]


def _by_name(rank: int, name: str) -> dict[str, Any]:
    r = Run("aer", name=name, lr=0.02)
    losses = r.train(60)
    groups = r.optimizer.param_groups
    inner = r.optimizer.optimizer.param_groups
    return {
        "losses": losses,
        "decays": [g["weight_decay"] for g in groups],
        "one_rate": [g["lr"] for g in groups] == [g["lr"] for g in inner],
        "accum": groups[0].get("accum"),
    }


@pytest.mark.parametrize("name", ["accumadamw", "adamw"])
def test_an_optimizer_by_name(name: str) -> None:
    """The learning rate that the scheduler sets reaches the inner optimizer (A13)."""
    for r in run(2, _by_name, name):
        assert sum(r["losses"][-8:]) < sum(r["losses"][:8]) and r["one_rate"]
        assert r["decays"][-1] == 0.0  # norms and biases
        assert r["accum"] == (4 if name == "accumadamw" else None)


class _Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.seldom, self.frozen = nn.Linear(WIDTH, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.frozen.requires_grad_(False)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, all_of_it: bool, again: bool) -> torch.Tensor:
        self.seen = self.seen + x.mean()  # a new tensor under the same name
        hidden = torch.utils.checkpoint.checkpoint(self.used, x, use_reentrant=again)
        if all_of_it:
            hidden = self.seldom(hidden)
        return self.frozen(hidden)


def _odd_graph(rank: int) -> dict[str, Any]:
    accelerate = accelerator()
    plugin = DecentralizedPlugin(topology="complete").attach(accelerate)
    torch.manual_seed(rank)
    net = _Parts()
    net, optimizer = accelerate.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05))
    for k in range(6):
        x = torch.randn(4, WIDTH, requires_grad=True)
        accelerate.backward(net(x, all_of_it=k % 2 == rank, again=k % 3 == 0).sum())
        optimizer.step()
        optimizer.zero_grad()
    gossip(optimizer).flush()
    seen = net.seen.clone()
    with plugin.averaged(net):
        averaged = net.seen.clone()
    exchanged = sum(p.numel() for p in net.parameters() if p.requires_grad)
    return {
        "seldom": net.seldom.weight.detach().clone(),
        "seen": seen,
        "averaged": averaged,
        "n": exchanged,
        "sent": plugin.sent_bytes,
        "frozen": net.frozen.weight.detach().clone(),
    }


def test_unused_frozen_checkpointed_and_replaced_parts() -> None:
    """Parameters unused on some workers are averaged; frozen ones do not travel (D1, D2, D3, D5, D10)."""
    a, b = run(2, _odd_graph)
    assert torch.equal(a["seldom"], b["seldom"]) and torch.equal(a["frozen"], b["frozen"])
    torch.testing.assert_close(a["averaged"], (a["seen"] + b["seen"]) / 2)
    assert (
        a["sent"] <= 7 * 4 * (a["n"] + 3 * 16) and a["sent"] >= 6 * 4 * a["n"]
    )  # buckets are padded a little


def _ends_early(rank: int) -> None:
    r = Run("ring", comm_timeout=30.0)
    r.train(4 if rank == 0 else 2)


def test_a_worker_whose_data_ends_early_is_named() -> None:
    """No hang: the one that still waits says who ended, and when (B1, B2)."""
    first, second = outcomes(2, _ends_early)
    assert second.exit_code == 0, second.error
    assert first.exit_code == 1 and "worker 1 ended after 2 steps" in first.error.lower()


def _one_asks(rank: int) -> str:
    r = Run("ring", comm_timeout=3.0)
    r.train(2)
    try:
        if rank == 0:
            r.plugin.distance()
        else:
            torch.distributed.barrier()
    except (PeerLost, RuntimeError) as error:
        return type(error).__name__ + str(error)
    return ""


def test_a_collective_call_on_one_worker_ends_within_the_deadline() -> None:
    try:
        said = run(2, _one_asks)[0]
    except RuntimeError as error:  # the other worker may be torn down by the first
        said = str(error)
    assert "PeerLost" in said and "worker 1 did not answer" in said.lower()


def test_attach_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = accelerator()
    plugin = DecentralizedPlugin(topology="ring")
    with pytest.raises(LaunchError, match="before attach"):
        plugin.distance()
    with pytest.raises(LaunchError, match="was given a Linear"):
        plugin.attach(nn.Linear(1, 1))
    plugin.attach(accelerate)
    for again in (plugin, DecentralizedPlugin()):
        with pytest.raises(LaunchError, match="attached already"):
            again.attach(accelerate)
    with pytest.raises(LaunchError, match="same number of optimizer steps"):
        accelerate.join_uneven_inputs([model()])
    late = accelerator()
    late.prepare(model())
    with pytest.raises(LaunchError, match="right after"):
        DecentralizedPlugin().attach(late)
    with pytest.raises(SettingsError, match="1 in all"):
        DecentralizedPlugin(hosts="2,2").attach(accelerator())


@pytest.mark.parametrize(
    "kind", [DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM]
)
def test_accelerators_that_shard_are_refused(kind: DistributedType) -> None:
    accelerate = accelerator()
    accelerate.state.distributed_type = kind
    with pytest.raises(LaunchError, match=kind.value):
        DecentralizedPlugin(topology="ring").attach(accelerate)


def test_several_processes_that_accelerate_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun on a machine without accelerator, and an Accelerator that was not told so."""
    accelerate = accelerator()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(LaunchError, match="ACCELERATE_USE_CPU=true"):
        DecentralizedPlugin(topology="ring").attach(accelerate)
    with pytest.raises(LaunchError, match="4 separate trainings"):
        DecentralizedPlugin(topology="allreduce").attach(accelerate)


def test_an_optimizer_without_its_model_takes_no_step() -> None:
    accelerate = accelerator()
    DecentralizedPlugin(topology="ring").attach(accelerate)
    net = model()
    optimizer = accelerate.prepare(torch.optim.SGD(net.parameters(), lr=0.1))
    net(torch.randn(4, WIDTH)).sum().backward()
    with pytest.raises(ParameterError, match="accelerator.prepare"):
        optimizer.step()
    accelerate.prepare(net)
    optimizer.step()


def test_an_optimizer_that_gossips_already_is_refused() -> None:
    accelerate = accelerator()
    DecentralizedPlugin(topology="ring").attach(accelerate)
    net = model()
    optimizer = decentralize(torch.optim.SGD(net.parameters(), lr=0.1), "ring")
    with pytest.raises(DecentralizedError, match="gossips already"):
        accelerate.prepare(net, optimizer)


def _asks_too_early(rank: int) -> str:
    accelerate = accelerator()
    plugin = DecentralizedPlugin(topology="ring").attach(accelerate)
    try:
        with plugin.averaged(model()):
            return ""
    except ParameterError as error:
        return str(error)


def test_the_consensus_of_a_model_that_was_not_prepared() -> None:
    assert all("prepare(model, optimizer)" in said for said in run(2, _asks_too_early))


def test_settings_are_logged_once_with_their_source(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="hf_decentral"):
        DecentralizedPlugin(topology="ring").attach(accelerator())
    assert caplog.text.count("topology=ring (argument)") == 1 and "accum=4 (default)" in caplog.text
