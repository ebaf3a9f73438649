"""The table of local optimizers: every row passes the same exams."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from hf_decentral.errors import DecentralizedError, ParameterError, SettingsError
from hf_decentral.integrations.optimizers import OPTIMIZERS, build, decay_groups, names, settings_of
from hf_decentral.optim.accum_adam import AccumAdam, AccumAdamW


class Small(nn.Module):
    """An embedding, a hidden matrix, a norm, a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.hidden = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.hidden(self.table(tokens)).tanh() + self.table(tokens)))

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int = 0) -> list[float]:
    draw = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(0, 11, (16,), generator=draw)
        loss = nn.functional.cross_entropy(model(tokens), (tokens * 3 + 1) % 11)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def small(seed: int = 0) -> Small:
    torch.manual_seed(seed)
    return Small()


@pytest.mark.parametrize("name", names())
def test_every_row_learns_and_resumes_bitwise(name, tmp_path: Path):
    rate = 0.5 if "sgd" in name else 0.03
    whole, half = small(), small()
    losses = learn(whole, build(name, whole, lr=rate), 9)
    assert losses[-1] < losses[0]

    optimizer = build(name, half, lr=rate)
    draws = torch.Generator().manual_seed(0)
    tokens = [torch.randint(0, 11, (16,), generator=draws) for _ in range(9)]

    def steps(model, optimizer, batches):
        for batch in batches:
            nn.functional.cross_entropy(model(batch), (batch * 3 + 1) % 11).backward()
            optimizer.step()
            optimizer.zero_grad()

    steps(half, optimizer, tokens[:5])
    torch.save({"model": half.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "half.pt")
    again = small(seed=1)
    saved = torch.load(tmp_path / "half.pt", weights_only=True)
    again.load_state_dict(saved["model"])
    resumed = build(name, again, lr=rate)
    resumed.load_state_dict(saved["optimizer"])
    steps(again, resumed, tokens[5:])
    for left, right in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("name", names())
def test_every_row_follows_a_scheduler_and_shrinks_matrices_only(name):
    model = small()
    optimizer = build(name, model, lr=0.1, weight_decay=0.2)
    decays = {group["weight_decay"] for group in optimizer.param_groups}
    assert decays == {0.2, 0.0}
    for group in optimizer.param_groups:
        assert all((p.ndim >= 2) == (group["weight_decay"] > 0) for p in group["params"])
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    before = [p.detach().clone() for p in model.parameters()]
    learn(model, optimizer, 1)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("name", names())
def test_every_row_offers_the_nearest_name(name):
    with pytest.raises(SettingsError, match=f"(?s)Unknown optimizer.*{name}"):
        build(name + "x", small())


def test_aliases_and_case():
    assert isinstance(build("DAdamW", small()), torch.optim.AdamW)
    assert isinstance(build("dsgd", small().parameters(), lr=0.1, momentum=0.9), torch.optim.SGD)
    assert isinstance(build("accumadam", small()), AccumAdam)
    assert isinstance(build("AccumAdamW", small(), accum=2), AccumAdamW)
    assert len(names()) == len(set(names()))
    assert set(OPTIMIZERS) <= set(names())


def test_settings_reach_the_optimizer_and_none_is_left_out():
    built = build("accumadamw", small(), lr=0.5, betas=(0.8, 0.9), accum=3, horizon="steps", eps=None)
    assert built.defaults["lr"] == 0.5
    assert built.defaults["accum"] == 3
    assert built.defaults["horizon"] == "steps"
    assert built.defaults["eps"] == 1e-8
    assert {"lr", "betas", "accum"} <= settings_of("accumadam")
    assert "betas" not in settings_of("sgd")
    assert "params" not in settings_of("muon")


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "muon", "dadam"])
def test_a_window_is_refused_where_there_is_none(name):
    with pytest.raises(SettingsError, match=r"(?s)has no window.*accumadam"):
        build(name, small(), accum=8)
    build(name, small(), accum=None, horizon=None)


def test_unknown_settings_and_values_are_refused():
    with pytest.raises(SettingsError, match="momentum"):
        build("adamw", small(), momentum=0.9)
    with pytest.raises(SettingsError, match="learning rate"):
        build("adamw", small(), lr=-1.0)
    with pytest.raises(SettingsError, match="(?i)accum"):
        build("accumadam", small(), accum=0)


def test_decay_groups():
    model = small()
    decayed, plain = decay_groups(model, 0.3)
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in plain["params"]} == {1}
    assert decayed["weight_decay"] == 0.3
    model.norm.requires_grad_(False)
    model.hidden.bias.requires_grad_(False)
    assert len(decay_groups(model, 0.3)) == 1
    model.requires_grad_(False)
    with pytest.raises(ParameterError, match="Small has no parameter"):
        decay_groups(model, 0.3)


def test_muon_takes_the_hidden_matrices_only():
    model = small()
    optimizer = build("muon", model, lr=0.01)
    rules = {id(p): group["rule"] for group in optimizer.param_groups for p in group["params"]}
    assert rules[id(model.hidden.weight)] == "muon"
    assert {rules[id(p)] for p in model.parameters() if p is not model.hidden.weight} == {"adamw"}
    learn(model, copy.deepcopy((model, optimizer))[1], 1)
    learn(model, optimizer, 2)
    assert "momentum_buffer" in optimizer.state[model.hidden.weight]
    assert "exp_avg_sq" in optimizer.state[model.table.weight]


def test_muon_steps_like_torchs_own_and_adamw():
    ours, theirs = small(), small()
    optimizer = build("muon", ours, lr=0.02, weight_decay=0.0)
    hidden = [theirs.hidden.weight]
    others = [p for p in theirs.parameters() if p is not theirs.hidden.weight]
    pair = [
        torch.optim.Muon(hidden, lr=0.02, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=0.02, weight_decay=0.0),
    ]
    for seed in range(4):
        learn(ours, optimizer, 1, seed)
        tokens = torch.randint(0, 11, (16,), generator=torch.Generator().manual_seed(seed))
        nn.functional.cross_entropy(theirs(tokens), (tokens * 3 + 1) % 11).backward()
        for each in pair:
            each.step()
            each.zero_grad()
    for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(left, right)


def test_muon_without_the_model_says_what_it_needs():
    with pytest.raises(ParameterError, match="Give the model"):
        build("muon", small().parameters())
    model = small()
    built = build("muon", [model.hidden.weight], lr=0.1)
    assert isinstance(built, torch.optim.Muon)
    with pytest.raises(ParameterError, match="matrices"):
        build("muon", model).add_param_group({"params": [nn.Parameter(torch.zeros(3))], "rule": "muon"})


def test_every_refusal_is_of_the_family():
    with pytest.raises(DecentralizedError):
        build("adamw", small(), betas=(2.0, 3.0))


def test_embeddings_and_a_tied_head_may_have_a_rate_of_their_own():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    optimizer = build("adamw", model, lr=0.1, weight_decay=0.1, embedding_scale=4.0)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    for name, p in model.named_parameters():
        assert rates[id(p)] == pytest.approx(0.4 if "wte" in name or "wpe" in name else 0.1), name
    plain = build("adamw", model, lr=0.1, weight_decay=0.1, embedding_scale=1.0)
    assert [group["lr"] for group in plain.param_groups] == [0.1, 0.1]


@pytest.mark.parametrize(("name", "scale"), [("muon", 2.0), ("adamw", 0.0)])
def test_a_rate_of_embeddings_that_cannot_be_meant(name, scale):
    with pytest.raises(SettingsError, match="embedding_scale"):
        build(name, torch.nn.Embedding(4, 4), embedding_scale=scale)
    with pytest.raises(SettingsError, match="embedding_scale"):
        build("adamw", [torch.nn.Parameter(torch.zeros(2))], embedding_scale=2.0)
