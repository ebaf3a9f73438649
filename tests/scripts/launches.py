"""Start the pretraining script as a user does, with a launcher, and with the smallest model there is."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from hf_decentral.errors import DecentralizedError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "pretrain_gpt2.py"
CONFIGS = ROOT / "accelerate_configs"
SMALL = [
    *("--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--batch_size=2", "--tokenizer=bpe:300"),
    *("--eval_contexts=16", "--log_every=1", "--eval_every=0", "--warmup_steps=2"),
]


def accelerate(config: str, processes: int | None = None) -> list[str]:
    """The stock ``accelerate launch`` with one of the project's files."""
    words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / config)]
    return words if processes is None else [*words, "--num_processes", str(processes)]


def torchrun(processes: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]


def environment(**extra: str) -> dict[str, str]:
    """This process's environment, without what a launcher above the tests may have set."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith(("ACCELERATE_", "DECENTRAL_"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", **extra}


def start(launcher: list[str], output: Path, *arguments: str, **extra: str) -> subprocess.Popen[str]:
    """Start the script, with its words in ``output.log``."""
    return begin([*launcher, str(SCRIPT), *SMALL, f"--output_dir={output}", *arguments], output, **extra)


def begin(words: list[str], output: Path, **extra: str) -> subprocess.Popen[str]:
    """Start a program in a session of its own, as a terminal would; what it says goes to ``output.log``."""
    with output.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            words, stdout=log, stderr=log, text=True, env=environment(**extra), start_new_session=True
        )


def finish(process: subprocess.Popen[str], output: Path, seconds: float = 150) -> tuple[int, str]:
    """Exit code and words of a run; if it does not end by itself, end what it started, and fail."""
    family = [process, *psutil.Process(process.pid).children(recursive=True)]
    try:
        code = process.wait(seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            for one in family[1:]:
                if one.is_running():
                    one.kill()
            process.wait()
    return code, output.with_suffix(".log").read_text()


def run(launcher: list[str], output: Path, *arguments: str, **extra: str) -> dict[str, Any]:
    """Run the script to its end and give back its summary."""
    return summary_of(start(launcher, output, *arguments, **extra), output)


def summary_of(process: subprocess.Popen[str], output: Path) -> dict[str, Any]:
    """The summary that a program wrote, which must end well."""
    code, told = finish(process, output)
    assert code == 0, told
    summary: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return summary


def script() -> ModuleType:
    """The script as a module, for what ends before it trains and needs no process of its own."""
    place = importlib.util.spec_from_file_location("pretrain_gpt2", SCRIPT)
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    sys.modules["pretrain_gpt2"] = module  # dataclasses look their module up
    place.loader.exec_module(module)
    return module


def refused(output: Path, *arguments: str) -> str:
    """What the script says instead of training, in this process."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    try:
        with pytest.raises(DecentralizedError) as caught:
            script().main([*SMALL, f"--output_dir={output}", *arguments])
    finally:
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
    return str(caught.value)


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def workers_of(process: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The workers that a launcher started, by rank."""
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        rank = child.environ().get("RANK")
        if rank is not None and str(SCRIPT) in child.cmdline():
            found[int(rank)] = child
    return found
