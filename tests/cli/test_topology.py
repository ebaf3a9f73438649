"""``hf-decentral topology`` as it is typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hf_decentral.cli import drawing
from hf_decentral.cli.topology import hosts_of
from hf_decentral.errors import SettingsError
from hf_decentral.rounds import Round
from hf_decentral.topology import TABLE, build, names


def test_show_prints_draws_and_writes(typed, tmp_path: Path) -> None:
    png, file = tmp_path / "new" / "aer.png", tmp_path / "new" / "aer.json"
    code, out, err = typed("show", "aer", "-n", "8", "--hosts", "4", "--png", str(png), "--json", str(file))
    assert (code, err) == (0, "")
    assert "{0,1}  {2,3}  {4,5,6,7}" in out
    assert "exact mean after: 4" in out
    assert "sent per step and worker: 1.25 P" in out
    assert "relative to All-Reduce: 1\n" in out
    assert png.read_bytes().startswith(b"\x89PNG")
    found = json.loads(file.read_text())
    assert (found["topology"], found["workers"], found["period"], found["exact_after"]) == ("aer", 8, 4, 4)
    assert (found["sent_multiple"], found["second_eigenvalue"]) == (1.25, 0.0)
    assert found["largest_stable_step"] == pytest.approx(1, abs=1e-3)
    assert found["rounds"][1] == {"groups": [[0, 1, 2, 3], [4, 5], [6, 7]]}


def test_a_ring_allows_two_thirds_of_the_step(typed, tmp_path: Path) -> None:
    file = tmp_path / "ring.json"
    code, out, _ = typed("show", "ring", "-n", "8", "--json", str(file))
    assert code == 0
    assert "largest stable step relative to All-Reduce: 0.667" in out
    assert "second eigenvalue of a period: 0.8047" in out
    third = pytest.approx(1 / 3)
    assert json.loads(file.read_text())["rounds"][0]["rows"][0] == [[0, third], [1, third], [7, third]]


def test_redrawn_rounds_are_told_as_such(typed, tmp_path: Path) -> None:
    file = tmp_path / "random.json"
    code, out, _ = typed("show", "random_matching(7)", "-n", "8", "--json", str(file))
    assert code == 0
    assert "period: none, ever new rounds come" in out
    assert "squared differences left after a round, mean of 64 rounds: 0.4286" in out
    assert "second eigenvalue" not in out and "exact" not in out
    found = json.loads(file.read_text())
    assert (found["topology"], found["period"], len(found["rounds"])) == ("random_matching(7)", None, 64)
    assert found["expected_contraction"] == pytest.approx(3 / 7)


def test_the_spectral_gap_is_told(typed, tmp_path: Path) -> None:
    file = tmp_path / "torus.json"
    code, out, _ = typed("show", "torus", "-n", "16", "--json", str(file))
    assert code == 0
    assert "second eigenvalue of a period: 0.6 (spectral gap 0.4)" in out
    found = json.loads(file.read_text())
    assert found["spectral_gap"] == pytest.approx(0.4)
    assert found["expected_contraction"] is None


@pytest.mark.parametrize(
    ("name", "workers"),
    [(name, n) for name, entry in TABLE.items() for n in (1, 3) if entry.serves(n)]
    + [("hypercube", 4), ("torus", 9)],
)
def test_every_topology_is_shown_and_drawn(typed, tmp_path: Path, name: str, workers: int) -> None:
    png = tmp_path / "a.png"
    code, out, _ = typed("show", name, "-n", str(workers), "--png", str(png))
    assert code == 0
    assert f"{name}, {workers} workers" in out
    assert png.read_bytes().startswith(b"\x89PNG")


def test_many_workers_are_shown_without_their_spectrum(typed) -> None:
    code, out, _ = typed("show", "complete", "-n", "1000", "--hosts", "125")
    assert code == 0
    assert "up to 128 workers" in out
    assert "sent per step and worker: 2 P" in out


def test_list_names_all(typed, tmp_path: Path) -> None:
    code, out, _ = typed("list", "--json", str(tmp_path / "list.json"))
    assert code == 0
    assert all(name in out for name in names())
    assert sorted(json.loads((tmp_path / "list.json").read_text())["topologies"]) == names()


def test_help_says_what_the_figures_mean(typed) -> None:
    code, out, _ = typed("show", "--help")
    told = " ".join(out.split())
    assert code == 0
    assert "For example: hf-decentral topology show" in told
    assert "a ring bears only 2/3" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "aerr"), "Did you mean 'aer'"),
        (("show", "allreduce"), "Known are aer"),
        (("show", "aer", "-n", "0"), "1 worker or more"),
        (("show", "aer", "-n", "-3"), "1 worker or more"),
        (("show", "aer", "-n", "8", "--hosts", "4,5"), "8 in all"),
        (("show", "aer", "-n", "8", "--hosts", "9"), "a number of hosts up to 8"),
        (("show", "aer", "-n", "8", "--hosts", "x"), "the workers of each"),
        (("show", "aer", "-n", "4", "--png", "/dev/null/a.png"), "cannot be written"),
        (("show", "aer", "-n", "4", "--png", "picture.docx"), "cannot be written"),
        (("show", "aer", "-n", "4", "--json", "/dev/null/a.json"), "cannot be written"),
        (("show", "aer", "-n", "four"), "as an integer"),
        (("show",), "Expected a name, or a file"),
        (("show", "ring", "--matrix", "weights.csv"), "Both 'ring' and --matrix"),
        (("show", "--matrix", "weights.csv", "--hosts", "2"), "nothing beside --matrix"),
        (("show", "torus", "-n", "10"), "nearest: 9 and 12"),
        (("show", "hypercube", "-n", "6"), "nearest: 4 and 8"),
        (("show", "base_graph(two)"), "whole numbers"),
    ],
)
def test_bad_input_is_told_without_a_traceback(typed, words: tuple[str, ...], said: str) -> None:
    code, _, err = typed(*words)
    assert code == 2
    assert said in " ".join(err.split())
    assert "Traceback" not in err


def test_a_picture_without_matplotlib_names_the_extra(typed, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as Python does where it is not installed
    code, _, err = typed("show", "aer", "-n", "4", "--png", str(tmp_path / "a.png"))
    assert code == 2
    assert "hf-decentral[report]" in err


@pytest.mark.parametrize(
    ("given", "workers", "hosts"),
    [
        (None, 3, None),
        ("1", 3, [0, 0, 0]),
        ("2", 5, [0, 0, 0, 1, 1]),
        ("3", 3, [0, 1, 2]),
        ("4,4,2", 10, [0] * 4 + [1] * 4 + [2] * 2),
        ("1, 2", 3, [0, 1, 1]),
    ],
)
def test_hosts_as_they_are_typed(given: str | None, workers: int, hosts: list[int] | None) -> None:
    assert hosts_of(given, workers) == hosts


@pytest.mark.parametrize("given", ["", "0", "-1", "3,", "2,-1,2", "1.5"])
def test_hosts_that_cannot_be_meant(given: str) -> None:
    with pytest.raises(SettingsError, match="--hosts"):
        hosts_of(given, 3)


@pytest.mark.parametrize(
    ("round", "text"),
    [
        (Round.identity(3), "nobody talks"),
        (Round.average([(0, 2)], 4), "{0,2}  (2 alone)"),
        (build("ring", 5)(0), "each i <- i-1: 0.333, i+1: 0.333"),
        (build("one_peer_exponential", 5)(1), "each i <- i-2: 0.5"),
        (build("base_graph", 5)(2), "0 <-> 4: 0.8  (3 alone)"),
        (build("base_graph", 7)(2), "0 <-> 4: 0.571  1 <-> 5: 0.571  2 <-> 6: 0.571  (1 alone)"),
        (
            Round((((0, 0.5), (1, 0.5)), ((1, 0.5), (2, 0.5)), ((0, 0.5), (2, 0.5)), ((3, 1.0),))),
            "0 <- 1: 0.5  1 <- 2: 0.5  2 <- 0: 0.5  (1 alone)",
        ),
    ],
)
def test_a_round_in_words(round: Round, text: str) -> None:
    assert drawing.text(round) == text
