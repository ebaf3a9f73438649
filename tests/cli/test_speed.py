"""``hf-decentral topology speed`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_decentral.topology import names


def test_the_table_tells_rounds_exactness_and_who_cannot(typed, tmp_path: Path) -> None:
    file, png = tmp_path / "new" / "speed.json", tmp_path / "new" / "speed.png"
    code, out, _ = typed("speed", "-n", "8,25", "--json", str(file), "--png", str(png))
    assert code == 0
    assert all(name in out for name in names())
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()}
    assert lines["complete"] == ["exact", "1", "exact", "1", "run"]
    assert lines["base_graph"] == ["exact", "3", "exact", "9", "run"]
    assert lines["torus"][0] == "-" and lines["hypercube"][1] == "-"
    assert "hypercube, n = 25: It needs a power of two of workers; nearest: 16 and 32." in out
    assert png.read_bytes().startswith(b"\x89PNG")
    found = json.loads(file.read_text())
    rows = {(row["topology"], row["workers"]): row for row in found["speeds"]}
    assert found["factor"] == 1e6 and len(rows) == 2 * len(names())
    assert rows["ring", 8]["rounds"] == pytest.approx(61, abs=3)
    assert rows["one_peer_exponential", 8]["exact_after"] == 3
    assert rows["one_peer_exponential", 25]["exact_after"] is None
    assert rows["random_matching", 25]["how"] == "median"
    assert rows["hypercube", 25]["rounds"] is None and "power of two" in rows["hypercube", 25]["reason"]


def test_some_topologies_for_a_thousand_workers(typed, tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    code, out, _ = typed("speed", "ring", "base_graph(4)", "random_ring", "-n", "1000", "--json", str(file))
    assert code == 0
    assert "813,762*" in out and "* computed from eigenvalues" in out
    ring, base, redrawn = json.loads(file.read_text())["speeds"]
    assert ring["how"] == "eigenvalues"
    assert (base["topology"], base["exact_after"]) == ("base_graph(4)", 5)
    assert redrawn["rounds"] == pytest.approx(25, abs=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("speed", "-n", "8,x"), "numbers of workers, 1 or more"),
        (("speed", "-n", "0"), "numbers of workers, 1 or more"),
        (("speed", "-n", ""), "numbers of workers, 1 or more"),
        (("speed", "rng"), "Did you mean 'ring'"),
        (("speed", "ring", "-n", "4", "--png", "/dev/null/a.png"), "cannot be written"),
        (("speed", "ring", "-n", "4", "--json", "/dev/null/a.json"), "cannot be written"),
    ],
)
def test_bad_input_is_told_without_a_traceback(typed, words: tuple[str, ...], said: str) -> None:
    code, _, err = typed(*words)
    assert code == 2
    assert said in " ".join(err.split())
    assert "Traceback" not in err
