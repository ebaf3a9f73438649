"""The arguments: parsed as those of transformers, from a command line, JSON and YAML."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import HfArgumentParser, TrainingArguments
from transformers.training_args import OptimizerNames

from hf_decentral.errors import SettingsError
from hf_decentral.integrations import optimizers
from hf_decentral.trainer import (
    DecentralizedSeq2SeqTrainingArguments,
    DecentralizedTrainer,
    DecentralizedTrainingArguments,
)
from hf_decentral.trainer.arguments import make_plugin, settle
from tests.trainer.runs import model, settings

WORDS = [
    "--output_dir",
    "out",
    "--optim",
    "accumadam",
    "--accum",
    "8",
    "--topology",
    "ring",
    "--report_to",
    "none",
]


def parsed(kind: Any, words: list[str]) -> Any:
    return HfArgumentParser(kind).parse_args_into_dataclasses(words)[0]


@pytest.mark.parametrize("kind", [DecentralizedTrainingArguments, DecentralizedSeq2SeqTrainingArguments])
def test_a_command_line(kind: Any) -> None:
    args = parsed(kind, WORDS)
    assert (args.optim, args.accum, args.topology) == ("accumadam", 8, "ring")
    assert settle(args).topology == "ring" and settle(args).accum == 8
    assert args.to_dict()["optim"] == "accumadam" and "accumadam" in args.to_json_string()
    assert "accum" in args.to_sanitized_dict()


@pytest.mark.parametrize("kind", [DecentralizedTrainingArguments, DecentralizedSeq2SeqTrainingArguments])
def test_what_is_shown_holds_no_token_of_the_hub(kind: Any) -> None:
    args = kind("out", optim="dsgd", hub_token="hf_secret")
    assert "dsgd" in repr(args) and "hf_secret" not in repr(args) + str(args)


def test_json_and_yaml_files(tmp_path: Path) -> None:
    content = {"output_dir": "out", "optim": "dsgd", "topology": "every(2, ring)", "comm_timeout": 9}
    (tmp_path / "a.json").write_text(json.dumps(content))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(content))
    parser = HfArgumentParser(DecentralizedTrainingArguments)
    for (args,) in (parser.parse_json_file(tmp_path / "a.json"), parser.parse_yaml_file(tmp_path / "a.yaml")):
        assert (args.optim, args.comm_timeout) == ("dsgd", 9)
        assert make_plugin(args).topology == "every(2, ring)"


def test_help_tells_what_every_setting_is_for() -> None:
    told = " ".join(HfArgumentParser(DecentralizedTrainingArguments).format_help().split())
    for field in dataclasses.fields(DecentralizedTrainingArguments):
        assert f"--{field.name}" in told
    for word in ("accumadam", "then(complete, 500, aer)", "allreduce", "windows"):
        assert word in told


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["--optim", "acumadam"], "'accumadam'"),
        (["--optim", "adamw_torc"], "'adamw_torch'"),
        (["--topology", "rinng"], "'ring'"),
        (["--topology", "evry(2, ring)"], "'every'"),
        (["--horizon", "step"], "'steps'"),
    ],
)
def test_typos_are_answered_with_the_nearest_name(words: list[str], nearest: str) -> None:
    with pytest.raises(SettingsError, match="Did you mean " + nearest):
        parsed(DecentralizedTrainingArguments, ["--output_dir", "out", *words])


def test_a_stock_optimizer_without_a_topology_stays_stock() -> None:
    stock = [name.value for name in OptimizerNames]
    assert all(
        settle(TrainingArguments("out", optim=name, use_cpu=True)).topology == "allreduce" for name in stock
    )
    assert settle(parsed(DecentralizedTrainingArguments, WORDS[:4])).topology == "aer"
    args = DecentralizedTrainingArguments("out", optim="sgd")
    assert settle(args).topology == "allreduce"
    assert settle(dataclasses.replace(args, topology="ring")).topology == "ring"


def test_the_source_of_a_topology_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    args = DecentralizedTrainingArguments("out", optim="adamw_torch")
    assert "topology=allreduce (default)" in make_plugin(args).settings.describe()
    given = DecentralizedTrainingArguments("out", optim="accumadam", topology="ring")
    assert "topology=ring (argument)" in make_plugin(given).settings.describe()
    monkeypatch.setenv("DECENTRAL_TOPOLOGY", "complete")
    assert "topology=complete (environment)" in make_plugin(args).settings.describe()


def test_the_environment_gives_a_topology_to_any_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECENTRAL_TOPOLOGY", "complete")
    assert settle(DecentralizedTrainingArguments("out", optim="adamw_torch")).topology == "complete"


def test_a_search_for_the_batch_size_cannot_be_done_alone() -> None:
    with pytest.raises(SettingsError, match="auto_find_batch_size"):
        DecentralizedTrainingArguments("out", topology="ring", auto_find_batch_size=True)


def test_setters_take_our_names() -> None:
    args = DecentralizedTrainingArguments("out", report_to="none")
    args.set_optimizer("accumadamw", learning_rate=0.5)
    assert (args.optim, args.learning_rate) == ("accumadamw", 0.5)
    assert args.set_optimizer("adafactor").optim == "adafactor"


@pytest.mark.parametrize("name", sorted({*optimizers.names()} - {"sgd"}))
def test_every_name_of_ours_makes_its_optimizer(tmp_path: Path, name: str) -> None:
    args = DecentralizedTrainingArguments(**settings(tmp_path, optim=name, adam_beta2=0.9, weight_decay=0.1))
    made = DecentralizedTrainer(model(), args).create_optimizer()
    assert isinstance(made, torch.optim.Optimizer)
    assert all(group["lr"] == 1e-2 for group in made.param_groups)
    assert {group["weight_decay"] for group in made.param_groups} == {0.0, 0.1}
    if "accum" in name:
        assert made.param_groups[0]["accum"] == 4 and made.param_groups[0]["betas"] == (0.9, 0.9)


def test_optim_args_and_the_embeddings_rate(tmp_path: Path) -> None:
    changed = {"optim": "dsgd", "optim_args": "momentum=0.9, nesterov=True", "embedding_scale": 4.0}
    made = DecentralizedTrainer(
        model(), DecentralizedTrainingArguments(**settings(tmp_path, **changed))
    ).create_optimizer()
    assert made.param_groups[0]["momentum"] == 0.9 and made.param_groups[0]["nesterov"] is True
    rates = {tuple(p.shape): group["lr"] for group in made.param_groups for p in group["params"]}
    assert rates[32, 16] == pytest.approx(4e-2) and rates[16, 48] == 1e-2
    for given, told in (("momentun=0.9", "momentun"), ("0.9", "NAME=VALUE")):
        args = DecentralizedTrainingArguments(**settings(tmp_path, optim="dsgd", optim_args=given))
        broken = DecentralizedTrainer(model(), args)
        with pytest.raises(SettingsError, match=told):
            broken.create_optimizer()


def test_an_algorithm_brings_its_optimizer_unless_one_is_asked_for() -> None:
    args = parsed(
        DecentralizedTrainingArguments, ["--output_dir", "out", "--algorithm", "diloco", "--period", "8"]
    )
    assert str(getattr(args.optim, "value", args.optim)) == "adamw"
    assert (settle(args).topology, settle(args).averaging) == ("every(8, complete)", "diloco")
    args = DecentralizedTrainingArguments("out", algorithm="dpsgd", optim="accumadam", topology="ring")
    assert (args.optim, settle(args).topology, settle(args).order) == ("accumadam", "ring", "atc")
    with pytest.raises(SettingsError, match="Did you mean 'slowmo'"):
        DecentralizedTrainingArguments("out", algorithm="slomo")
