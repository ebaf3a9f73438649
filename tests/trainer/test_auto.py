"""``--topology auto`` of the Trainer: a choice in the first steps, told in the log, kept by checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_decentral.integrations import auto
from hf_decentral.integrations.trial import TRIAL
from hf_decentral.planner import Choice
from hf_decentral.trainer import DecentralizedTrainingArguments
from tests.processes import run
from tests.trainer.runs import Replicas, settings, trainer, weights

pytestmark = pytest.mark.processes

STEPS = TRIAL + 7


def _seen(rank: int, folder: str, resume: Any, choice: str) -> dict[str, Any]:
    replicas, real = Replicas(), auto.choose
    if choice:
        auto.choose = lambda measured, **among: Choice(choice, "int4", "as the test wants it", 1.5)
    made = trainer(
        folder, callbacks=[replicas], topology="auto", optim="accumadam", max_steps=STEPS, dropout=0.1,
        save_strategy="steps", save_steps=4, logging_steps=1, eval_strategy="steps", eval_steps=5,
    )  # fmt: skip
    made.train(resume_from_checkpoint=resume)
    auto.choose = real
    told = [(line["step"], line["topology"]) for line in made.state.log_history if "topology" in line]
    return {"seen": [*replicas.seen, weights(made.model)], "told": told, "topology": made.plugin.topology}


def _same(whole: dict[str, Any], again: dict[str, Any], at: int) -> bool:
    before: list[Tensor] = whole["seen"][at:]
    return len(before) == len(again["seen"]) and all(map(torch.equal, before, again["seen"]))


def test_it_chooses_tells_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = run(2, _seen, str(tmp_path / "whole"), None, "ring")
    for r in whole:
        assert r["topology"] == "ring" and r["told"] == [(TRIAL, "ring")]
    for at, choice in ((4, "ring"), (TRIAL + 1, "complete")):  # the other choice is asked for no more
        folder = tmp_path / "whole" / f"checkpoint-{at}"
        manifest = json.loads((folder / "decentral.json").read_text())
        assert (manifest["topology"], manifest["averaging"]) == (
            ("ring", "int4") if at > TRIAL else ("auto", "plain")
        )
        shutil.copytree(folder, tmp_path / str(at) / folder.name)
        for before, after in zip(whole, run(2, _seen, str(tmp_path / str(at)), True, choice), strict=True):
            assert after["topology"] == "ring" and _same(before, after, at), at


def test_what_was_really_measured_is_chosen_from(tmp_path: Path) -> None:
    first, second = run(2, _seen, str(tmp_path), None, "")
    assert first["topology"] == second["topology"] != "auto"
    assert first["told"] == [(TRIAL, first["topology"])]


def test_the_flag_and_its_file(tmp_path: Path) -> None:
    args = DecentralizedTrainingArguments(**settings(tmp_path, topology="auto", cluster="cluster.json"))
    assert args.topology == "auto" and args.cluster == "cluster.json"


def _twice(rank: int, folder: str) -> tuple[list[str], bool]:
    made = trainer(folder, topology="auto", optim="accumadam", max_steps=TRIAL - 4)
    names = []
    for _ in range(3):  # the second one ends the trial, and the third has an optimizer of its own
        made.train()
        names.append(made.plugin.topology)
        if len(names) == 2:
            made.optimizer = made.lr_scheduler = None
    [handle] = made.plugin.handles
    return [*names, handle.topology.name], bool(torch.isfinite(weights(made.model)).all())


def test_training_again_goes_on_with_the_trial_and_then_with_the_choice(tmp_path: Path) -> None:
    for names, finite in run(2, _twice, str(tmp_path)):
        assert finite and names[0] == "auto" and names[1] != "auto" and names[1:] == [names[1]] * 3
