"""``hf-decentral topology show --matrix FILE``: weights and graphs out of files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_decentral.topology import build

RING = build("ring", 6)(0).matrix()
PERIOD = torch.stack([round.matrix() for round in build("base_graph", 6).rounds()])


def written(path: Path, content: Tensor | str) -> str:
    """The name of a file with these weights, or with a text as it is."""
    if isinstance(content, str):
        path.write_text(content)
    elif path.suffix == ".json":
        path.write_text(json.dumps(content.tolist()))
    elif path.suffix == ".csv":
        np.savetxt(path, content.numpy(), delimiter=",", fmt="%.17g")
    elif path.suffix == ".npy":
        np.save(path, content.numpy())
    else:
        torch.save(content, path)
    return str(path)


@pytest.mark.parametrize("ending", ["json", "csv", "npy", "pt"])
def test_a_matrix_is_read_and_drawn(typed, tmp_path: Path, ending: str) -> None:
    file, png, out_file = (
        written(tmp_path / f"mine.{ending}", RING),
        tmp_path / "a.png",
        tmp_path / "out.json",
    )
    code, out, err = typed("show", "--matrix", file, "-n", "6", "--png", str(png), "--json", str(out_file))
    assert (code, err) == (0, "")
    assert f"mine.{ending}, 6 workers" in out
    assert "second eigenvalue of a period: 0.6667 (spectral gap 0.3333)" in out
    assert png.read_bytes().startswith(b"\x89PNG")
    found = json.loads(out_file.read_text())
    assert (found["workers"], found["period"]) == (6, 1)
    assert found["rounds"][0]["rows"] == [[list(each) for each in row] for row in build("ring", 6)(0).rows]


@pytest.mark.parametrize("ending", ["json", "npy", "pt"])
def test_several_matrices_are_a_period(typed, tmp_path: Path, ending: str) -> None:
    code, out, _ = typed("show", "--matrix", written(tmp_path / f"mine.{ending}", PERIOD))
    assert code == 0
    assert "period: 4" in out and "exact mean after: 4" in out


def test_an_edge_list_gets_metropolis_weights(typed, tmp_path: Path) -> None:
    text = "# a star, as networkx writes it\n0 1 {}\n\n0 2 {'weight': 3}\n3 0\n0 4  # a comment\n"
    file = written(tmp_path / "star.edgelist", text)
    code, out, _ = typed("show", "--matrix", file)
    assert code == 0
    assert "second eigenvalue of a period: 0.8 (spectral gap 0.2)" in out
    code, _, err = typed("show", "--matrix", file, "-n", "6")
    assert code == 2
    assert "Nothing leads from workers 0, 1, 2, 3, ... (5 in all) to worker 5" in " ".join(err.split())


@pytest.mark.parametrize(
    ("name", "content", "more", "told"),
    [
        ("a.json", "{]", (), "cannot be read (Expecting property name"),
        ("a.json", '"ring"', (), "no matrix"),
        ("a.json", '{"ring": 1}', (), "no matrix"),
        ("a.csv", "1,2\n3\n", (), "cannot be read"),
        ("a.csv", "a,b\nc,d\n", (), "cannot be read"),
        ("a.csv", "0.5,0.4\n0.5,0.5\n", (), "Row 0 sums to 0.9"),
        ("a.npy", "no array", (), "cannot be read"),
        ("a.pt", "no tensor", (), "cannot be read"),
        ("a.edgelist", "0 1\n2\n", (), "line 2 does not begin with two workers: '2'"),
        ("a.edgelist", "a b\n", (), "line 1 does not begin with two workers"),
        ("a.edgelist", "", (), "No graph could be read"),
        ("a.txt", "0 1\n", (), "Did you mean"),
        ("a.csv", "0.5,0.5\n0.5,0.5\n", ("-n", "3"), "Expected 2, the workers of a.csv"),
    ],
)
def test_bad_files_are_told_without_a_traceback(
    typed, tmp_path: Path, name: str, content: str, more: tuple[str, ...], told: str
) -> None:
    code, _, err = typed("show", "--matrix", written(tmp_path / name, content), *more)
    assert code == 2
    assert told in " ".join(err.split())
    assert "Traceback" not in err


def test_a_file_that_runs_code_is_refused(typed, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (Path(tmp_path / "ran").touch, ())

    torch.save(Evil(), tmp_path / "a.pt")
    np.save(tmp_path / "a.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    for name in ("a.pt", "a.npy"):
        code, _, err = typed("show", "--matrix", str(tmp_path / name))
        assert code == 2
        assert "cannot be read" in err
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_not_there(typed, tmp_path: Path) -> None:
    code, _, err = typed("show", "--matrix", str(tmp_path / "none.csv"))
    assert code == 2
    assert "cannot be read" in err
