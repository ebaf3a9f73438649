"""The pretraining script under the stock launchers, on this machine's CPUs."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoTokenizer, GPT2LMHeadModel

from tests.scripts.launches import CONFIGS, ROOT, accelerate, lines, run, script, torchrun

pytestmark = pytest.mark.timeout(180)

LINE = {
    "step", "tokens", "seconds", "train_loss_worker", "train_loss", "learning_rate", "tokens_per_second",
    "consensus_distance", "sent_bytes", "waited_seconds",
}  # fmt: skip
SUMMARY = {
    "topology", "optim", "workers", "steps", "tokens", "val_loss", "step_seconds", "consensus_distance",
    "sent_bytes",
}  # fmt: skip


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return GPT2LMHeadModel.from_pretrained(folder / "model").state_dict()


def check(output: Path, summary: dict[str, Any], workers: int, steps: int) -> None:
    assert summary.keys() >= SUMMARY
    assert (summary["workers"], summary["steps"]) == (workers, steps)
    assert summary["tokens"] == workers * steps * 2 * 16
    assert math.isfinite(summary["val_loss"]) and summary["val_loss"] < math.log(300) + 0.5
    written = lines(output)
    assert [line["step"] for line in written] == list(range(1, steps + 1))
    assert all(line.keys() >= LINE for line in written)
    model, tokenizer = weights(output), AutoTokenizer.from_pretrained(output / "model")
    assert len(tokenizer) == model["transformer.wte.weight"].shape[0] == 300


@pytest.mark.parametrize(
    ("config", "topology", "workers"),
    [
        ("decentralized_aer.yaml", "aer", 4),
        ("decentralized_complete.yaml", "complete", 4),
        ("allreduce.yaml", "allreduce", 4),
    ],
)
def test_each_launch_file_that_can_run_here(tmp_path: Path, config: str, topology: str, workers: int) -> None:
    summary = run(accelerate(config), tmp_path / "out", "--max_steps=4")
    check(tmp_path / "out", summary, workers, 4)
    assert summary["topology"] == topology
    assert summary["sent_bytes"] > 0
    assert (summary["consensus_distance"] > 0) == (topology != "allreduce")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_launch_files_are_ones_that_accelerate_accepts(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(path))
    assert config.num_processes % config.num_machines == 0
    # Anything but MULTI_GPU starts a single process on a machine without GPU, and says nothing.
    assert config.distributed_type == "MULTI_GPU" and not config.use_cpu


@pytest.mark.parametrize(
    "path", sorted((ROOT / "scripts" / "recipes").glob("gpt2_*.yaml")), ids=lambda p: p.name
)
def test_recipes_hold_flags_only(path: Path) -> None:
    from hf_decentral.integrations import recipe

    settings = recipe.parse(script().Settings, ["--recipe", str(path), "--max_steps", "7"])
    given = yaml.safe_load(path.read_text())
    assert settings.max_steps == 7
    for name, value in given.items():
        assert name == "max_steps" or getattr(settings, name) == value
        assert type(getattr(settings, name)) is type(value)


def test_the_paper_s_form_of_the_model_and_the_same_weights_under_either_launcher(tmp_path: Path) -> None:
    form = ("--bias=false", "--vocab_size=320", "--gradient_accumulation_steps=2", "--mixed_precision=bf16")
    how = (*form, "--max_steps=3", "--seed=3", "--dropout=0.1", "--horizon=steps", "--topology=complete")
    launched = run(accelerate("cpu_one_host.yaml"), tmp_path / "a", *how, "--report_to=tensorboard")
    assert (launched["workers"], launched["topology"]) == (2, "complete")
    assert launched["tokens"] == 2 * 3 * 2 * 2 * 16
    assert list((tmp_path / "a").glob("**/events*"))
    model = weights(tmp_path / "a")
    assert model["transformer.wte.weight"].shape == (320, 16)
    assert all((value == 0).all() for name, value in model.items() if name.endswith(".bias"))

    run(torchrun(2), tmp_path / "b", *how)
    again = weights(tmp_path / "b")
    assert all(torch.equal(model[name], again[name]) for name in model)


def test_one_plain_process(tmp_path: Path) -> None:
    text = tmp_path / "mine.jsonl"
    text.write_text("".join(json.dumps({"body": f"line {k} " * 9}) + "\n" for k in range(300)))
    output = tmp_path / "out"
    arguments = (f"--dataset={text}", "--text_column=body", "--max_steps=4", "--streaming")
    summary = run([sys.executable], output, *arguments)
    assert (summary["workers"], summary["sent_bytes"], summary["consensus_distance"]) == (1, 0, 0.0)
    assert summary["settings"]["dataset"] == str(text)
