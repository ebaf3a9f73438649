"""The published times beside the model's: the arithmetic by hand, and the table of the page."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "paper_times.py"
PAGE = ROOT / "docs" / "runtime_model.md"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    place = importlib.util.spec_from_file_location("paper_times", SCRIPT)
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    sys.modules["paper_times"] = module
    place.loader.exec_module(module)
    return module


def case(script: ModuleType, pair: object, link: str, **more: object) -> object:
    found = [each for each in script.CASES if each.pair is pair and each.link == link]
    return next(each for each in found if all(getattr(each, name) == value for name, value in more.items()))


def test_the_published_pairs(script: ModuleType):
    """As the paper has them: 600,000 steps, and 8,196 averagings."""
    assert (script.GPT.baseline, script.GPT.other) == pytest.approx((0.1948, 0.1825), rel=1e-3)
    assert script.AVERAGING.baseline * 8196 == pytest.approx(55.31)
    assert script.AVERAGING.other * 8196 == pytest.approx(29.55)
    assert all(pair.other < pair.baseline for pair in {each.pair for each in script.CASES})


def test_the_pieces_are_those_of_gpt2(script: ModuleType):
    pieces = script.gpt2_pieces()
    assert sum(share for _, share in pieces) == pytest.approx(1)
    assert [time for time, _ in pieces] == sorted(time for time, _ in pieces)
    # 12 d^2 a block of width 768 and 13 d numbers beside them, and 50,257 + 1,024 rows of the embeddings.
    assert pieces[0][1] * script.GPT2 == pytest.approx(12 * 768**2 + 13 * 768, rel=0.01)
    assert pieces[-1][1] * script.GPT2 == pytest.approx((50_257 + 1_024) * 768, rel=0.01)


def test_a_wire_that_is_slower_than_the_step_explains_nothing(script: ModuleType):
    """498 MB of float32 among 16 workers at 25 Gbit/s: 299 ms."""
    found = script.predicted(case(script, script.GPT, "25gbit", size=4 * script.GPT2))
    assert found.free == "" and math.isnan(found.other)
    assert found.baseline > 2 * 15 / 16 * 4 * script.GPT2 * 8 / 25e9 > script.GPT.baseline
    assert script.row(found)[5:7] == ("", "")


@pytest.mark.parametrize("link", ["100gbit", "200gbit"])
def test_the_chosen_number_gives_the_baseline(script: ModuleType, link: str):
    found = script.predicted(case(script, script.GPT, link))
    assert found.baseline == pytest.approx(script.GPT.baseline, rel=1e-5)
    assert found.other < found.baseline


def test_averaging_alone_is_what_the_formulas_make_of_it(script: ModuleType):
    """A ring of 16 passes 15/8 of the bytes, AER's two rounds 7/4 between the hosts and 3/2 inside."""
    found = script.predicted(case(script, script.AVERAGING, "25gbit", shards=False))
    network, inside = 8 / 25e9, 8 / 160e9
    ratio = (1.75 * network + 1.5 * inside) / 2 / (1.875 * network)
    # Latencies are in it as well, and workers of some pairs wait for those of others.
    assert found.other / found.baseline == pytest.approx(ratio, rel=0.05)


def test_one_copy_between_two_hosts_is_less_than_a_ring(script: ModuleType):
    times = [
        script.predicted(case(script, script.A40S, "25gbit", shards=shards)).other for shards in (False, True)
    ]
    assert times[1] < times[0]


def test_only_a_fast_link_explains_the_gain_of_gpt2(script: ModuleType):
    """The slower the link, the more of the step is wire, and the more AER is expected to gain."""
    links = ("100gbit", "200gbit", "400gbit")
    cases = [case(script, script.GPT, link, size=4 * script.GPT2) for link in links]
    gains = [1 - script.predicted(each).other / script.GPT.baseline for each in cases]
    published = 1 - script.GPT.other / script.GPT.baseline
    assert gains[0] > gains[1] > published > gains[2] > 0


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the script prints as Markdown, and the folder of its file."""
    folder = tmp_path_factory.mktemp("times")
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--markdown", "--json", str(folder / "times.json")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout, folder


def test_the_page_has_this_table(told: tuple[str, Path]):
    """To the last digit but one: a generator of random numbers may round otherwise."""
    printed, page = told[0].splitlines(), PAGE.read_text(encoding="utf-8").splitlines()
    begin = page.index(printed[0])
    assert page[begin + len(printed)] == ""  # and no row more
    for ours, theirs in zip(printed, page[begin:], strict=False):
        for cell, shown in zip(ours.split("|"), theirs.split("|"), strict=True):
            try:
                assert float(cell.strip(" %")) == pytest.approx(float(shown.strip(" %")), abs=0.11)
            except ValueError:
                assert cell.split(":")[0].lstrip(" 0123456789.") == shown.split(":")[0].lstrip(" 0123456789.")


def test_the_file_has_what_the_table_has(script: ModuleType, told: tuple[str, Path]):
    rows = json.loads((told[1] / "times.json").read_text(encoding="utf-8"))["rows"]
    assert [row["assumed"] for row in rows] == [each.words for each in script.CASES]
    for row, line in zip(rows, told[0].splitlines()[2:], strict=True):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        assert cells[:2] == [row["pair"], row["assumed"]]
        assert float(cells[4]) == pytest.approx(1e3 * row["published_seconds"], abs=0.006)
        if row["chosen"] is None:
            assert row["model_seconds"] is None and row["error"] is None and cells[5:7] == ["", ""]
        else:
            assert float(cells[5]) == pytest.approx(1e3 * row["model_seconds"], abs=0.006)
            assert row["error"] == pytest.approx(row["model_seconds"] / row["published_seconds"] - 1)


def test_the_gains_are_drawn(script: ModuleType, tmp_path: Path):
    pytest.importorskip("matplotlib")
    unknown = case(script, script.GPT, "25gbit", size=4 * script.GPT2)
    known = case(script, script.AVERAGING, "25gbit", shards=False)
    script.draw([script.predicted(each) for each in (unknown, known)], tmp_path / "gains.png")
    assert (tmp_path / "gains.png").read_bytes().startswith(b"\x89PNG")


def test_people_get_a_table(script: ModuleType):
    """A row that nothing explains, and one that is predicted."""
    found = [script.predicted(each) for each in script.CASES if each.pair is script.AVERAGING]
    found.append(script.predicted(case(script, script.GPT, "25gbit", size=4 * script.GPT2)))
    with (console := Console(width=250)).capture() as printed:
        console.print(script.table([script.row(each) for each in found]))
    lines = [line for line in printed.get().splitlines() if "Gbit/s" in line]
    assert len(lines) == len(found) and "none: 314 ms" in lines[-1]
    assert all(f"{each.error:+.1%}" in line for each, line in zip(found[:-1], lines, strict=False))
