"""Bad data, wrong flags, a killed worker, Ctrl-C: a sentence, and no process left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.scripts.launches import accelerate, finish, refused, start, workers_of

pytestmark = pytest.mark.timeout(180)

ENDLESS = "--max_steps=1000000"


def wait_for_steps(process: subprocess.Popen[str], output: Path, count: int = 3) -> None:
    metrics = output / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") >= count):
        assert process.poll() is None, output.with_suffix(".log").read_text()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--dataset=./no/such/file"], "There is no file or folder"),
        (["--dataset={folder}/empty.txt"], "holds no text"),
        (["--dataset={folder}/binary.txt"], "looks binary"),
        (["--dataset={folder}/small.txt"], "contexts of 16 tokens"),
        (["--topology=rign"], "Did you mean 'ring'"),
        (["--batch_sice", "3"], "Unknown flag '--batch_sice'"),
        (["--batch_size=0"], "--batch_size=0 was given"),
        (["--n_head=0"], "--n_head=0 was given"),
        (["--eval_contexts=-1"], "--eval_contexts=-1 was given"),
        (["--output_dir={folder}/empty.txt/out"], "cannot begin in .*NotADirectoryError"),
        (["--recipe={folder}/recipe.yaml"], "max_step"),
    ],
)
def test_bad_settings_are_told_in_a_sentence(tmp_path: Path, arguments: list[str], expected: str) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(b"ab\0cd")
    (tmp_path / "small.txt").write_text("a few words")
    (tmp_path / "recipe.yaml").write_text("max_step: 3\n")
    given = [argument.format(folder=tmp_path) for argument in arguments]
    assert re.search(expected, refused(tmp_path / "out", *given))
    assert not (tmp_path / "out" / "summary.json").exists()


def test_the_script_ends_with_the_sentence_alone(tmp_path: Path) -> None:
    code, told = finish(start([sys.executable], tmp_path / "out", "--topology=rign"), tmp_path / "out")
    assert code == 1
    assert "SettingsError (worker 0): " in told and "Traceback" not in told


def test_too_little_text_for_all_workers_ends_all_of_them(tmp_path: Path) -> None:
    text = tmp_path / "small.txt"
    text.write_text("just a few words, too few for two workers. " * 4)
    process = start(accelerate("decentralized_aer.yaml", 2), tmp_path / "out", f"--dataset={text}")
    code, told = finish(process, tmp_path / "out")
    assert code != 0
    assert "one step of 2 workers takes 4" in told.replace("One", "one")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_a_killed_worker_is_named_by_the_others(tmp_path: Path) -> None:
    """Without a launcher that ends the others: each worker started on its own, as on separate hosts."""
    world = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    outputs = [tmp_path / f"worker{rank}" for rank in range(3)]
    processes = [
        start([sys.executable], output, ENDLESS, "--topology=complete", "--comm_timeout=30",
              **world, RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="3")
        for rank, output in enumerate(outputs)
    ]  # fmt: skip
    try:
        wait_for_steps(processes[0], outputs[0])
        processes[2].kill()
        for rank in (0, 1):
            code, told = finish(processes[rank], outputs[rank], 60)
            assert code != 0
            assert "PeerLost" in told and "Traceback" not in told, told
            assert "orker 2" in told or rank == 1, told  # the second one may lose the first one first
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_a_launched_run_leaves_no_process_behind(tmp_path: Path, how: str) -> None:
    output = tmp_path / "out"
    process = start(accelerate("decentralized_aer.yaml"), output, ENDLESS)
    wait_for_steps(process, output)
    workers = workers_of(process)
    assert sorted(workers) == [0, 1, 2, 3]
    if how == "kill":
        workers[2].kill()
    else:
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
    code, told = finish(process, output, 90)
    assert code != 0
    _, alive = psutil.wait_procs(list(workers.values()), timeout=30)
    assert alive == []
    if how == "kill":
        assert "rank      : 2" in told and "SIGKILL" in told  # the launcher names it
