"""What the pages of the algorithms say is what the table has, and what they show runs as it stands there."""

from __future__ import annotations

import ast
import math
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_decentral import DecentralizedPlugin, averaging, decentralize, gossip
from hf_decentral.algorithms import TABLE, Algorithm, build
from hf_decentral.errors import DecentralizedError, SettingsError
from hf_decentral.integrations import optimizers
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.lockstep import Simulation
from hf_decentral.simulator.setup import Setup
from hf_decentral.transport import Memory
from tests.processes import run

PAGES = Path(__file__).resolve().parent.parent / "docs" / "algorithms"
INDEX = (PAGES / "README.md").read_text(encoding="utf-8")
TECHNIQUES = {"random_rings"}  # pages of parts, which are no rows
REAL = [name for name in TABLE if not TABLE[name].alone]


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table that begins with a heading."""
    lines = text[text.index(f"| {heading} |") :].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def test_every_algorithm_has_a_page_and_every_page_a_row():
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    assert pages == {*TABLE} | TECHNIQUES


def parts(algorithm: Algorithm) -> str:
    rounds = algorithm.topology.format(topology="TOPOLOGY", period=algorithm.period)
    delay = algorithm.how("TOPOLOGY")["delay"]
    words = [f"`{each}`" for each in (algorithm.optimizer, algorithm.order, algorithm.averaging, rounds)]
    words += [str(algorithm.period), "as the order" if delay is None else str(delay), str(algorithm.lr)]
    return f"| {' | '.join(words)} |"


@pytest.mark.parametrize("name", TABLE)
def test_a_page_names_the_parts_and_the_source(name: str):
    assert parts(build(name)) in page(name).splitlines(), f"the row is {parts(build(name))}"
    for number in re.findall(r"\d{4}\.\d{5}", build(name).source):
        assert number in page(name), number


@pytest.mark.parametrize("name", sorted({*TABLE} | TECHNIQUES))
def test_a_page_is_short_and_its_links_lead_somewhere(name: str):
    text = page(name)
    assert 25 <= len(text.splitlines()) <= 55
    for part in ("Keeps and sends", "When it pays", "When it fails", "Defaults"):
        assert f"\n**{part}.** " in text
    assert f"](curves/{name}.png)" in text
    for target in re.findall(r"\]\(([\w.]+\.md)\)", text + INDEX):
        assert (PAGES / target).exists(), target


@pytest.mark.parametrize("name", sorted({*TABLE} | TECHNIQUES))
def test_a_page_has_its_curve(name: str):
    curve = PAGES / "curves" / f"{name}.png"  # drawn by scripts/draw_algorithms.py
    assert curve.stat().st_size < 40_000


def call_of(code: str, function: str) -> ast.Call:
    [call] = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function
    ]
    return call


@pytest.mark.parametrize("name", REAL)
def test_the_python_of_a_page_says_what_the_row_says(name: str):
    algorithm = build(name)
    [snippet] = blocks(page(name), "python")
    call = call_of(snippet, "decentralize")
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg != "model"}
    given["topology"] = ast.literal_eval(call.args[1])
    how = algorithm.how("ring")
    assert given == {key: value for key, value in how.items() if value is not None}

    spaces: dict[str, Any] = {}
    exec(compile(snippet, name, "exec"), spaces)
    settings = spaces["plugin"].settings
    assert settings.algorithm == name
    assert {key: getattr(settings, key) for key in how} == how
    assert spaces["optimizer"].param_groups[0]["lr"] == algorithm.lr
    model = torch.nn.Linear(8, 1)
    made = optimizers.build(algorithm.optimizer, model, lr=algorithm.lr, **algorithm.settings)
    assert type(spaces["optimizer"]) is type(made)


@pytest.mark.parametrize("name", sorted({*TABLE} - {*REAL}))
def test_the_python_of_a_page_without_a_global_step_runs(name: str):
    [snippet] = blocks(page(name), "python")
    spaces: dict[str, Any] = {}
    exec(compile(snippet, name, "exec"), spaces)
    assert spaces["run"].algorithm == name and math.isfinite(spaces["run"].loss)
    with pytest.raises(SettingsError):
        DecentralizedPlugin(algorithm=name)


def _trained(rank: int, name: str) -> tuple[list[float], float]:
    torch.manual_seed(rank)
    loop = blocks(INDEX, "python")[0].replace("    loss.backward()", "    told(loss)\n    loss.backward()")
    losses: list[float] = []
    spaces: dict[str, Any] = {}

    def told(loss: torch.Tensor) -> None:
        losses.append(float(loss.detach()))
        gossip(spaces["optimizer"]).loss = loss.detach().reshape(1)

    spaces["told"] = told
    exec(compile(blocks(page(name), "python")[0] + loop, name, "exec"), spaces)
    return losses, gossip(spaces["optimizer"]).sent_bytes


def _all_trained(rank: int) -> dict[str, tuple[list[float], float]]:
    return {name: _trained(rank, name) for name in [*REAL, *TECHNIQUES]}


@pytest.mark.processes
def test_the_python_of_every_page_trains_with_four_workers():
    for found in run(4, _all_trained):
        for name, (losses, sent) in found.items():
            assert sent > 0, name
            assert sum(losses[-10:]) < 0.99 * sum(losses[:10]), name


def commands(text: str, program: str) -> Iterator[list[str]]:
    for block in blocks(text, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == program:
                yield words[1:]


@pytest.mark.parametrize("name", ["README", *sorted({*TABLE} | TECHNIQUES)])
def test_the_simulations_of_a_page_can_be_run(name: str, tmp_path: Path):
    import typer

    from hf_decentral.cli.app import build_app
    from hf_decentral.cli.simulate_runs import Runner
    from hf_decentral.cli.simulate_settings import Settings
    from hf_decentral.cli.simulate_store import Store

    verbs = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    simulated = []
    for verb, *words in commands(page(name), "hf-decentral"):
        context = verbs[verb].make_context(verb, words)
        if verb != "simulate":
            continue
        settings = replace(Settings(**context.params), steps=2, out=tmp_path)
        settings.check()
        runs, refused = Runner(settings, Store(tmp_path)).run()
        assert runs and not refused
        simulated += [each["algorithm"] for each in runs]
    assert name in simulated or name in {"README", *TECHNIQUES}


@pytest.mark.parametrize("name", [*REAL, *TECHNIQUES])
def test_the_flags_for_the_trainer_can_be_meant(name: str, tmp_path: Path):
    from transformers import HfArgumentParser

    from hf_decentral.integrations.settings import resolve
    from hf_decentral.trainer import DecentralizedTrainingArguments

    [words] = commands(page(name), "torchrun")
    flags = words[words.index("train.py") + 1 :]
    flags[flags.index("--output_dir") + 1] = str(tmp_path)
    [arguments] = HfArgumentParser((DecentralizedTrainingArguments,)).parse_args_into_dataclasses(flags)
    assert arguments.algorithm == name or name in TECHNIQUES
    resolve({key: getattr(arguments, key) for key in ("algorithm", "topology", "order", "period", "delay")})


WORKERS, SIDE = 8, 64
PERIOD = 16  # steps after which every row has sent the same again


def _problem() -> Problem:
    torch.manual_seed(0)
    inputs = torch.randn(64, SIDE)
    model = torch.nn.Linear(SIDE, SIDE, bias=False)
    loss = torch.nn.functional.mse_loss
    return Problem("regression", model, loss, (inputs, inputs), (inputs, inputs), batch=4)


def _numbers(item: Any) -> int:
    """Numbers in all tensors of a state that are as long as parameters, or nearly."""
    if isinstance(item, torch.Tensor):
        return item.numel() if item.ndim > 1 else 0
    if isinstance(item, dict):
        item = list(item.values())
    return sum(_numbers(each) for each in item) if isinstance(item, list | tuple) else 0


def test_the_index_has_every_row():
    names = [re.findall(r"\[(\w+)\]\(\1\.md\)", cells[0]) for cells in rows(INDEX, "name")]
    assert sorted(name for found in names for name in found) == sorted(TABLE)


@pytest.mark.parametrize("name", REAL)
def test_the_index_tells_what_is_sent_and_kept(name: str):
    [(_, _, sends, keeps)] = [cells for cells in rows(INDEX, "name") if cells[0] == f"[{name}]({name}.md)"]
    simulation = Simulation(Setup(_problem(), build(name).every(None), "ring", WORKERS, batch=4))
    sent = []
    for step in range(2 * PERIOD + 1):
        if step % PERIOD == 0:
            simulation.handle.settle()
            sent.append(simulation.transport.sent_bytes)
        simulation.step()
    told = {"n": WORKERS, "deg": 2, "rows": SIDE, "columns": SIDE}
    expected = eval(code(sends)[0], {}, told)
    size = 4 * SIDE * SIDE
    measured = (sent[2] - sent[1]) / PERIOD / size
    if sends.startswith("at most"):
        assert 0 < measured <= expected + 8192 / size  # and a few kilobytes that say when
    else:
        assert measured == pytest.approx(expected, rel=0.03)
    whole = WORKERS * SIDE * SIDE
    state = simulation.optimizer.state_dict()
    of_optimizer = _numbers([state["state"], state.get("inner", [])]) / whole
    of_averaging = _numbers(simulation.handle.state()["states"]) / whole
    assert [round(of_optimizer, 1), round(of_averaging, 1)] == [
        float(part) for part in code(keeps)[0].split("+")
    ]


def _made(topology: str, optimizer: Callable[..., torch.optim.Optimizer], **how: Any) -> None:
    x = torch.zeros(8, 4, requires_grad=True)  # 8 workers
    decentralize(optimizer([x], lr=0.1), topology, transport=Memory(8), **how)


def _works(topology: str, optimizer: Callable[..., torch.optim.Optimizer], **how: Any) -> bool:
    try:
        _made(topology, optimizer, **how)
    except SettingsError:
        return False
    return True


TURNS = DIRECTED = {"one_peer_exponential"}
DRAWN = {"random_matching"}
REFUSED_ROUNDS = {
    "any": set(),
    "that repeat": DRAWN,
    "that repeat, both ways": {*DIRECTED, *DRAWN},
    "of all workers": {"ring", *TURNS, *DRAWN},
    "of one symmetric matrix": {*TURNS, *DRAWN},
    "of one matrix, eigenvalues above -1/3": {"ring", *TURNS, *DRAWN},
}


def test_what_composes_with_what():
    told = rows(INDEX, "averaging")
    assert sorted(name for cells in told for name in code(cells[0])) == averaging.names()
    for names, orders, rounds, late, optimizer in told:
        for name in code(names):
            method = averaging.build(name)
            assert sorted(orders.split(", ")) == sorted(method.orders), name
            how = {"averaging": name, "order": "awc" if "awc" in method.orders else "atc"}
            topologies = {"complete", "ring", *TURNS, *DRAWN}
            refused = {each for each in topologies if not _works(each, torch.optim.SGD, **how)}
            assert refused == REFUSED_ROUNDS[rounds], name
            assert _works("every(4, complete)", torch.optim.SGD, **how, delay=3) == (late == "yes"), name
            assert _works("complete", torch.optim.Adam, **how) == (optimizer == "any"), name
            heavy = partial(torch.optim.SGD, momentum=0.9)
            assert _works("complete", heavy, **how) == (optimizer != "SGD without momentum"), name


@pytest.mark.parametrize("call", [code(cells[0])[0] for cells in rows(INDEX, "this")])
def test_what_is_refused(call: str):
    def made(optimizer: Callable[..., torch.optim.Optimizer], topology: str, **how: Any) -> None:
        _made(topology, optimizer, **how, model=torch.nn.Linear(1, 1))

    spaces = {"decentralize": made, "DecentralizedPlugin": DecentralizedPlugin}
    spaces |= {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    with pytest.raises(DecentralizedError):
        eval(call, spaces)


def test_one_of_your_own_runs(capsys: pytest.CaptureFixture[str]):
    spaces: dict[str, Any] = {}
    try:
        exec("\n".join(blocks(INDEX, "python")[1:]), spaces)
    finally:
        averaging.TABLE.pop("part_way", None)
        TABLE.pop("timid", None)
    assert float(capsys.readouterr().out) > 0
    assert spaces["x"].detach().std(1).max() == 0 and len(spaces["x"].unique()) == 4
