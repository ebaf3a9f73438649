"""``python -m hf_decentral.run``: unmodified scripts that know of transformers only."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2LMHeadModel

from hf_decentral.errors import LaunchError
from hf_decentral.run import run_module
from tests.scripts.launches import accelerate, environment

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parent / "examples"
SHORT = [
    "--max_steps=4",
    "--per_device_train_batch_size=2",
    "--report_to=none",
    "--logging_steps=2",
    "--save_steps=2",
]


def told(launcher: list[str], script: str, *arguments: str, code: int = 0) -> list[str]:
    """The lines that the script printed itself, one for each worker."""
    words = [*launcher, "-m", "hf_decentral.run", script, *arguments]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=280, env=environment())
    assert ended.returncode == code, ended.stdout + ended.stderr
    pattern = (
        r"^(?:Decentralized\w*Trainer [^*\n]*|\w+Error .*)"  # another worker's words may follow on the line
    )
    return re.findall(pattern, ended.stdout + ended.stderr, re.MULTILINE)


def test_a_causal_language_model_gossips_and_resumes(tmp_path: Path) -> None:
    script, launcher = str(EXAMPLES / "causal_lm.py"), accelerate("decentralized_aer.yaml", 2)
    arguments = [
        *SHORT,
        "--do_train",
        "--do_eval",
        f"--output_dir={tmp_path}",
        "--optim=accumadam",
        "--topology=ring",
    ]
    lines = told(launcher, script, *arguments)
    assert len(lines) == 2 and len(set(lines)) == 1  # every worker ends with the consensus
    assert lines[0].startswith("DecentralizedTrainer True GPT2LMHeadModel")
    assert (tmp_path / "checkpoint-4" / "decentral_worker_1.pt").is_file()
    assert {"eval_results.json", "train_results.json", "trainer_state.json"} <= {
        p.name for p in tmp_path.iterdir()
    }
    GPT2LMHeadModel.from_pretrained(tmp_path)
    again = told(launcher, script, *arguments, "--max_steps=6")  # it finds its last checkpoint by itself
    assert len(set(again)) == 1 and again != lines


def test_a_stock_optimizer_without_a_topology_stays_stock(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = str(EXAMPLES / "causal_lm.py")
    lines = told(launcher, script, *SHORT, "--do_train", f"--output_dir={tmp_path}", "--optim=adamw_torch")
    assert lines[0].startswith("DecentralizedTrainer True DistributedDataParallel")
    assert not list(tmp_path.glob("*/decentral*"))


def test_a_translation_script_generates_with_the_consensus(tmp_path: Path) -> None:
    script, launcher = str(EXAMPLES / "translation.py"), accelerate("decentralized_aer.yaml", 2)
    arguments = [*SHORT, f"--output_dir={tmp_path}", "--optim=dadamw", "--predict_with_generate"]
    lines = told(launcher, script, *arguments)
    assert len(set(lines)) == 1 and lines[0].startswith("DecentralizedSeq2SeqTrainer rows 7 5 sum ")


def test_what_cannot_be_run_is_told_in_a_sentence(tmp_path: Path) -> None:
    (line,) = told([sys.executable], "nowhere.py", code=1)
    assert line.startswith("LaunchError (worker 0): There is no file 'nowhere.py'")
    script = str(EXAMPLES / "causal_lm.py")
    (line,) = told([sys.executable], script, f"--output_dir={tmp_path}", "--optim=acumadam", code=1)
    assert line.startswith("SettingsError (worker 0): Unknown optimizer --optim 'acumadam'")


def test_help() -> None:
    words = [sys.executable, "-m", "hf_decentral.run", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=100, env=environment()).stdout
    assert "SCRIPT" in shown and "accelerate launch" in shown


def surroundings(*words: str, code: int) -> dict[str, Any]:
    """What a script says of itself: its arguments, its file, where it imports from, what Trainers it got."""
    ended = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=100, env=environment()
    )
    assert ended.returncode == code, ended.stderr
    assert code == 1 or "Traceback" not in ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize(
    ("named", "code"),
    [
        (["examples/surroundings.py", "-m", "--help"], 3),
        (["-m", "tests.trainer.examples.surroundings", "--interrupt"], 130),
    ],
    ids=["script", "module"],
)
def test_a_script_finds_what_python_gives_it_and_our_trainers(
    monkeypatch: pytest.MonkeyPatch, named: list[str], code: int
) -> None:
    root = EXAMPLES.parents[2]
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.chdir(root if named[0] == "-m" else EXAMPLES.parent)
    ours = surroundings("-m", "hf_decentral.run", *named, code=code)
    # without the last word: what python itself makes of an interrupt is a signal
    theirs = surroundings(*named[:-1], code=3)
    assert [f"Decentralized{name}" for name in theirs.pop("names")] == ours.pop("names")
    assert ours["argv"].pop() == named[-1]
    assert ours == theirs


def test_a_module_that_is_not_there() -> None:
    for name in ("nowhere.train", "hf_decentral.nowhere"):
        with pytest.raises(LaunchError, match=f"no module '{name}'"):
            run_module(name, [])
