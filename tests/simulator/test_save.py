"""A run that is stopped and goes on is the run without a stop, bit for bit."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_decentral import algorithms, simulate
from hf_decentral.cluster import Cluster
from hf_decentral.errors import CheckpointError
from hf_decentral.simulator import Run, problems
from hf_decentral.simulator.save import Checkpoint, patient

STEPS = 14


def stopped(path: Path, at: int, problem: Any, *names: Any, **settings: Any) -> Run:
    """The run, stopped once by a Ctrl-C."""

    def interrupt(done: int) -> None:
        if done == at:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        simulate(problem, *names, **settings, save=path, progress=interrupt)
    later: list[int] = []
    run = simulate(problem, *names, **settings, save=path, progress=later.append)
    assert later[0] == at + 1
    return run


@pytest.mark.parametrize("at", [3, 7])
@pytest.mark.parametrize("name", algorithms.names())
def test_every_algorithm_goes_on(name: str, at: int, tmp_path: Path):
    settings: dict[str, Any] = {"steps": STEPS, "record": 7, "lr": 0.05}
    problem = problems.build("logistic", 8, samples=400)
    whole = simulate(problem, name, "ring", 4, **settings)
    assert stopped(tmp_path / "run", at, problem, name, "ring", 4, **settings).points == whole.points


@pytest.mark.parametrize("averaging", ["plain", "int8", "top_k", "low_rank"])
@pytest.mark.parametrize("order", ["atc", "cta", "awc"])
def test_every_order_goes_on_with_what_methods_remember(order: str, averaging: str, tmp_path: Path):
    settings: dict[str, Any] = {"steps": STEPS, "record": 3, "order": order, "averaging": averaging}
    problem = problems.build("logistic", 8, samples=400)
    names = "accumadamw", "one_peer_exponential", 4
    whole = simulate(problem, *names, **settings)
    assert stopped(tmp_path / "run", 5, problem, *names, **settings).points == whole.points


def test_virtual_time_goes_on(tmp_path: Path):
    settings: dict[str, Any] = {"steps": STEPS, "record": 3, "cluster": Cluster("gaussian(1, 0.3)")}
    problem = problems.build("quadratic", 8)
    whole = simulate(problem, "oldsgd", "ring", 4, **settings)
    assert stopped(tmp_path / "run", 6, problem, "oldsgd", "ring", 4, **settings).points == whole.points


def test_a_finished_run_is_told_again_at_once(tmp_path: Path):
    path = tmp_path / "folder" / "run"
    settings: dict[str, Any] = {"steps": 5, "save": path}
    problem = problems.build("quadratic", 8)
    first = simulate(problem, "dpsgd", "ring", 4, **settings)
    steps: list[int] = []
    assert simulate(problem, "dpsgd", "ring", 4, **settings, progress=steps.append) == first
    assert steps == []
    assert path.stat().st_size < 20_000  # no parameters any more
    assert list(path.parent.iterdir()) == [path]


def test_the_file_of_another_run_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "run"
    problem = problems.build("quadratic", 8)
    simulate(problem, "dpsgd", "ring", 4, steps=5, save=path)
    before = path.read_bytes()
    for what, other in {
        "steps": {"steps": 6},
        "lr": {"steps": 5, "lr": 0.3},
        "seed": {"steps": 5, "seed": 1},
    }.items():
        with pytest.raises(CheckpointError, match=f"belongs to a run with {what}"):
            simulate(problem, "dpsgd", "ring", 4, save=path, **other)
    with pytest.raises(CheckpointError, match="start"):
        simulate(problems.build("quadratic", 8, seed=1), "dpsgd", "ring", 4, steps=5, save=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04"])
def test_a_file_that_is_no_checkpoint(content: bytes, tmp_path: Path):
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
        simulate("quadratic", "dpsgd", "ring", 4, steps=2, save=path)
    torch.save({"something": "else"}, path)
    with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
        simulate("quadratic", "dpsgd", "ring", 4, steps=2, save=path)


def test_a_place_where_nothing_can_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot be written"):
        Checkpoint(tmp_path / "file" / "run", {}).write({})


def test_what_was_there_is_whole_until_the_new_one_is(tmp_path: Path):
    class Broken:
        def __reduce__(self) -> Any:
            raise OSError("no room left")

    checkpoint = Checkpoint(tmp_path / "run", {"a": 1})
    checkpoint.write({"done": 1})
    with pytest.raises(CheckpointError, match="no room left"):
        checkpoint.write({"done": Broken()})
    assert checkpoint.load() == {"done": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_an_interrupt_waits_and_a_second_one_does_not():
    with patient() as answer:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            answer()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
