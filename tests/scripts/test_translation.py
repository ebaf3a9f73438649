"""The translation script, as a user starts it: both kinds of runs, scores that others find too, bad data."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.scripts.launches import ROOT, accelerate, begin, environment, finish, summary_of

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
SCRIPT = ROOT / "scripts" / "finetune_translation.py"
WORDNET = ROOT.parent / "shared" / "data" / "nltk_data"
SMALL = [
    *("--size=tiny", "--vocabulary_size=600", "--max_steps=6", "--max_tokens=600", "--max_samples=60"),
    *("--max_source_length=24", "--max_target_length=24", "--warmup_steps=2", "--report_to=none"),
    *("--logging_steps=2", "--save_strategy=no", "--generation_num_beams=2", "--learning_rate=2e-3"),
]


def fields_of_the_script() -> set[str]:
    place = importlib.util.spec_from_file_location("finetune_translation", SCRIPT)
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    sys.modules["finetune_translation"] = module  # dataclasses look their module up
    place.loader.exec_module(module)
    return {field.name for field in dataclasses.fields(module.Settings)}


def test_recipes_hold_flags_only() -> None:
    recipes = sorted((ROOT / "scripts" / "recipes").glob("transformer_*.yaml"))
    assert len(recipes) == 3
    for recipe in recipes:
        assert set(yaml.safe_load(recipe.read_text())) <= fields_of_the_script(), recipe.name


def words(launcher: list[str], output: Path, *arguments: str) -> list[str]:
    return [*launcher, str(SCRIPT), *SMALL, f"--output_dir={output}", *arguments]


def translated(launcher: list[str], output: Path, *arguments: str) -> dict[str, Any]:
    return summary_of(begin(words(launcher, output, *arguments), output), output)


def refused(output: Path, *arguments: str) -> str:
    code, told = finish(begin(words([sys.executable], output, *arguments), output), output)
    assert code == 1, told
    return told


def pairs(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "flags", [["--topology=ring", "--optim=accumadam"], ["--topology=allreduce"]], ids=["ring", "allreduce"]
)
def test_a_run_with_scores_that_sacrebleu_finds_again(tmp_path: Path, flags: list[str]) -> None:
    output = tmp_path / "out"
    saving = ["--save_strategy=steps", "--save_steps=3", "--average_last=2"]
    summary = translated(accelerate("decentralized_aer.yaml", 2), output, *flags, *saving)
    assert (summary["workers"], summary["steps"]) == (2, 6)
    assert summary["topology"] == flags[0].split("=")[1]
    for name in ("bleu", "val_loss", "tokens", "step_seconds", "optim", "sent_bytes"):
        assert summary[name] is not None
    assert summary["settings"]["max_tokens"] == 600 and summary["settings"]["train_file"] is None
    assert summary["tokens"] > 0 and "tok:13a" in summary["bleu_signature"]
    again = subprocess.run(
        [sys.executable, "-m", "sacrebleu", "references.txt", "-i", "predictions.txt"],
        cwd=output, capture_output=True, text=True, check=True, env=environment(),
    )  # fmt: skip
    assert json.loads(again.stdout)["score"] == pytest.approx(summary["bleu"], abs=0.05)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    with torch.no_grad():
        assert (
            model(**tokenizer(["Open the file."], text_target=["Öffne sie."], return_tensors="pt")).loss > 0
        )


def test_it_goes_on_where_it_stopped_and_fine_tunes_what_it_saved(tmp_path: Path) -> None:
    launcher, saving = accelerate("decentralized_aer.yaml", 2), ["--save_strategy=steps", "--save_steps=3"]
    common = ["--topology=ring", "--optim=dadamw", *saving]
    whole = translated(launcher, tmp_path / "whole", *common)
    stopped = tmp_path / "stopped"
    (tmp_path / "whole" / "checkpoint-3").rename((stopped.mkdir() or stopped) / "checkpoint-3")
    again = translated(launcher, stopped, *common, "--resume_from_checkpoint=True")
    assert again["val_loss"] == whole["val_loss"] and again["tokens"] == whole["tokens"]
    # With a rate of 0 the model stays what it is: any number of workers gives the same translations (I8).
    same = [f"--model={stopped}", "--max_steps=1", "--learning_rate=0"]
    alone = translated([sys.executable], tmp_path / "alone", *same)
    assert alone["workers"] == 1 and alone["topology"] == "allreduce"
    # as long as was asked for, and not as long as transformers takes by itself (B11)
    assert alone["settings"]["generation_max_length"] == 24
    three = translated(accelerate("decentralized_aer.yaml", 3), tmp_path / "three", *same, "--topology=ring")
    told = [(tmp_path / name / "predictions.txt").read_text() for name in ("alone", "three")]
    assert told[0] == told[1] and three["bleu"] == alone["bleu"]
    # a mean over batches, which hold other rows where there are more workers
    assert three["val_loss"] == pytest.approx(alone["val_loss"], rel=1e-2)


def test_a_test_set_with_an_empty_reference_an_empty_source_and_a_copy(tmp_path: Path) -> None:
    train = [
        {"translation": {"en": f"Press key {k} twice.", "de": f"Taste {k} zweimal drücken."}}
        for k in range(40)
    ]
    test = [
        *train[:3],
        {"translation": {"en": "Save it.", "de": ""}},
        {"translation": {"en": "", "de": "Nichts."}},
    ]
    test.append({"translation": {"en": "word " * 90, "de": "word " * 90}})
    files = [
        f"--train_file={pairs(tmp_path / 'a.jsonl', train)}",
        f"--test_file={pairs(tmp_path / 'b.jsonl', test)}",
    ]
    summary = translated([sys.executable], tmp_path / "out", *files, "--max_steps=2")
    assert summary["bleu"] >= 0 and "val_loss" not in summary
    assert len((tmp_path / "out" / "predictions.txt").read_text().splitlines()) == 6
    if WORDNET.exists():
        summary = translated(
            [sys.executable], tmp_path / "two", *files, f"--wordnet={WORDNET}", "--max_steps=2"
        )
        assert 0 <= summary["meteor"] <= 1


def test_bad_data_is_told_in_a_sentence(tmp_path: Path) -> None:
    good = [{"translation": {"en": "One more time.", "de": "Noch einmal."}}] * 8
    other = pairs(tmp_path / "columns.jsonl", [{"english": "One.", "german": "Eins."}])
    assert "english" in refused(tmp_path / "o1", f"--train_file={other}")
    path = tmp_path / "corrupt.jsonl"
    pairs(path, good)
    path.write_text(path.read_text() + "{broken\n")
    told = refused(tmp_path / "o2", f"--train_file={path}")
    assert "line 9" in told.lower() and "corrupt.jsonl" in told and "Traceback" not in told
    told = refused(
        tmp_path / "o3", f"--train_file={pairs(tmp_path / 'good.jsonl', good)}", "--target_lang=fr"
    )
    assert "'de'" in told
    assert "adam" in refused(tmp_path / "o4", "--optim=acumadam").lower()


def test_what_cannot_be_done_after_training_is_refused_before(tmp_path: Path) -> None:
    told = refused(tmp_path / "o1", "--average_last=2")  # and no checkpoints are saved
    assert "no checkpoint" in told.lower() and "Traceback" not in told
    told = refused(tmp_path / "o2", f"--wordnet={tmp_path}")
    assert "METEOR needs WordNet" in told and str(tmp_path) in told
    told = refused(tmp_path / "o3", "--max_stepz", "3")
    assert "Unknown flag '--max_stepz'" in told and "--max_steps" in told and "Traceback" not in told
    told = refused(tmp_path / "o4", f"--model={tmp_path}")
    assert f"No translation model can be loaded from '{tmp_path}'" in told and "Traceback" not in told
    assert not (tmp_path / "o1").exists() and not (tmp_path / "o2").exists()
