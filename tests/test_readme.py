"""What the README shows works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.S)
SHELL = " ".join(re.findall(r"```bash\n(.*?)```", README, flags=re.S)).replace("\\\n", " ")
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("DECENTRAL_", "ACCELERATE_"))
}


def run(words: list[str], folder: Path) -> str:
    told = subprocess.run(
        words,
        cwd=folder,
        env={**CLEAN, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def test_there_are_two_snippets():
    assert len(PYTHON) == 2


def test_the_plugin_snippet_under_the_launcher_and_alone(tmp_path: Path):
    (tmp_path / "train.py").write_text(PYTHON[0])
    config = str(ROOT / "accelerate_configs" / "cpu_one_host.yaml")
    launched = run(
        [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, "train.py"], tmp_path
    )
    alone = run([sys.executable, "train.py"], tmp_path)
    for told in (launched, alone):
        assert told.count("loss of the consensus:") == 1
        assert float(told.split("consensus:")[1].split()[0]) < 7.0  # the targets' variance is 8


def test_the_snippet_without_accelerate(tmp_path: Path):
    (tmp_path / "train.py").write_text(PYTHON[1])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    told = run([*torchrun, "train.py"], tmp_path)
    assert abs(float(told.split("bias of the consensus:")[1])) < 1.0


def test_every_path_it_names_is_there():
    named = re.findall(r"\b((?:scripts|accelerate_configs|hf_decentral)/[\w./]*)", README)
    assert len(named) > 6
    for path in named:
        assert (ROOT / path).exists(), path


def test_every_command_it_names_is_there():
    verbs = set(re.findall(r"hf-decentral (\w+)", README))
    assert {"bench", "calibrate", "demo", "doctor", "plan", "report", "simulate", "topology"} == verbs
    told = run([sys.executable, "-m", "hf_decentral.cli", "--help"], ROOT)
    assert all(verb in told for verb in verbs)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_every_make_target_is_there(target):
    assert f"make {target}" in SHELL
    assert f"\n{target}:" in (ROOT / "Makefile").read_text()


def test_every_flag_of_the_script_is_there():
    script = (ROOT / "scripts" / "pretrain_gpt2.py").read_text(encoding="utf-8")
    calls = [part for part in SHELL.split("accelerate launch") if "pretrain_gpt2.py" in part]
    flags = {flag for call in calls for flag in re.findall(r"--(\w+)", call.split("hf-decentral")[0])}
    flags -= {"config_file"}
    assert flags >= {"dataset", "topology", "output_dir"}
    for flag in flags:
        assert f"{flag}: " in script, flag


def test_every_topology_is_in_its_table():
    from hf_decentral import topology

    for name in [*topology.names(), "allreduce"]:
        assert f"| `{name}`" in README


def test_every_algorithm_is_in_its_table():
    from hf_decentral import algorithms

    section = README[README.index("\n## Algorithms") : README.index("\n## Fewer bytes")]
    named = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|.*$", section, flags=re.M))))
    assert named == set(algorithms.names())
