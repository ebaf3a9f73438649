"""Pictures of simulations: what is put together, told apart and shown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from hf_decentral.cli import curves
from hf_decentral.cli.simulate_table import Group, grouped, refusals, spread, table
from hf_decentral.errors import SettingsError


def run(algorithm: str = "dpsgd", topology: str = "ring", seed: int = 0, **more: Any) -> dict[str, Any]:
    """A run of three points whose loss halves at each, as ``Run.as_dict()`` has it."""
    losses = more.pop("losses", (4.0, 2.0, 1.0))
    sent = more.pop("sent", 1000.0)
    consensus = more.pop("consensus", None)  # left out, so that fewer pictures are drawn
    points = [
        {
            "step": 10 * number,
            "loss": loss,
            "accuracy": None,
            "consensus_distance": consensus,
            "sent_bytes": sent * number,
            "seconds": None,
        }
        for number, loss in enumerate(losses)
    ]
    shared = {
        "problem": "logistic",
        "workers": 4,
        "skew": None,
        "lr": 0.1,
        "step_seconds": 0.002,
        "skipped": 0,
    }
    last = {key: points[-1][key] for key in ("loss", "consensus_distance", "sent_bytes")}
    return {
        **shared,
        **last,
        "algorithm": algorithm,
        "topology": topology,
        "seed": seed,
        "points": points,
        **more,
    }


def shown(figures: list[Figure], runs: list[dict[str, Any]], folder: Path) -> dict[str, Figure]:
    """The figures by the names of their files."""
    figures.clear()
    names = [path.name for path in curves.draw(runs, folder)]
    return dict(zip(names, figures, strict=True))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is written from now on."""
    found: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *args: Any, **how: Any) -> None:
        found.append(self)
        save(self, *args, **how)

    monkeypatch.setattr(Figure, "savefig", keep)
    return found


def test_the_line_is_the_median_and_the_band_has_all_seeds(figures: list[Figure], tmp_path: Path):
    runs = [run(seed=seed, losses=(4.0, 2.0 + seed, 1.0 + 4 * seed), consensus=0.5) for seed in range(3)]
    found = shown(figures, runs, tmp_path)
    assert sorted(found) == [
        "consensus_bytes.png",
        "consensus_steps.png",
        "loss_bytes.png",
        "loss_steps.png",
    ]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in found)
    (axes,) = found["loss_steps.png"].axes
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[0, 4.0], [10, 3.0], [20, 5.0]]
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert [float(corners[:, 1].min()), float(corners[:, 1].max())] == [1.0, 9.0]
    assert "median of 3 seeds" in found["loss_steps.png"].get_suptitle()


def test_a_panel_for_each_skew_and_number_of_workers(figures: list[Figure], tmp_path: Path):
    runs = [run(skew=skew, workers=workers) for skew in (None, 0.1) for workers in (4, 8, 16)]
    axes = shown(figures, runs, tmp_path)["loss_bytes.png"].axes
    assert [each.get_title() for each in axes] == [
        f"{workers} workers, {skew}" for workers in (4, 8, 16) for skew in ("IID", "Dirichlet 0.1")
    ]
    assert all(len(each.lines) == 1 for each in axes)


def test_27_algorithms_are_told_apart(figures: list[Figure], tmp_path: Path):
    runs = [run(f"method{number}", skew=skew) for number in range(27) for skew in (None, 0.1)]
    figure = shown(figures, runs, tmp_path)["loss_bytes.png"]
    left, right = figure.axes
    looks = [(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in left.lines]
    assert len(set(looks)) == 27
    assert looks == [(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in right.lines]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"method{number}" for number in range(27)]
    # The legend stands beside the panels, inside the picture.
    box = legend.get_window_extent()
    assert box.x0 >= right.get_window_extent().x1
    assert box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1


@pytest.mark.parametrize("count", [9, 13])
def test_algorithms_on_several_topologies_are_told_apart(count: int):
    groups = grouped([run(f"method{n}", topology) for topology in "abcdef" for n in range(count)])
    styles = [repr(sorted(style.items())) for style in curves._styles(groups).values()]
    assert len(set(styles)) == len(styles) == 6 * count


def test_a_colour_is_an_algorithm_and_a_dash_a_topology():
    groups = grouped([run(name, topology) for name in ("dpsgd", "dadam") for topology in ("ring", "aer")])
    styles = curves._styles(groups)
    assert styles["dpsgd, ring"]["color"] == styles["dpsgd, aer"]["color"] != styles["dadam, aer"]["color"]
    assert styles["dpsgd, aer"]["linestyle"] == styles["dadam, aer"]["linestyle"] != "-"


def test_the_topology_that_all_share_is_not_repeated():
    def common(*runs: tuple[str, str]) -> str | None:
        return curves.common_topology(grouped([run(*each) for each in runs]))

    own = "every(4, complete)"
    assert common(("dpsgd", "ring")) == "ring"
    assert common(("dpsgd", "ring"), ("dadam", "ring"), ("local_sgd", own)) == "ring"
    assert common(("dpsgd", "ring"), ("dpsgd", "aer")) is None
    assert common(("dpsgd", "ring"), ("local_sgd", own)) is None


def test_a_run_that_diverges_leaves_the_picture(figures: list[Figure], tmp_path: Path):
    runs = [run("a"), run("b"), run("c", losses=(4.0, 1e9, 1e20))]
    (axes,) = shown(figures, runs, tmp_path)["loss_steps.png"].axes
    assert axes.get_ylim()[1] <= 2 * 4.0
    runs[2] = run("c", losses=(4.0, None, None))  # not finite: null in JSON
    (axes,) = shown(figures, runs, tmp_path)["loss_steps.png"].axes
    assert np.isnan(axes.lines[2].get_ydata()[1:].astype(float)).all()


def test_axes_are_logarithmic_where_values_are_far_apart(figures: list[Figure], tmp_path: Path):
    near = shown(figures, [run("a"), run("b", sent=2000.0)], tmp_path)["loss_bytes.png"].axes[0]
    assert (near.get_xscale(), near.get_yscale()) == ("linear", "linear")
    runs = [run("a", losses=(4.0, 0.1, 1e-3)), run("b", sent=1e6)]
    far = shown(figures, runs, tmp_path)["loss_bytes.png"].axes[0]
    assert (far.get_xscale(), far.get_yscale()) == ("log", "log")
    nothing = shown(figures, [run("a", sent=0.0)], tmp_path)["loss_bytes.png"].axes[0]
    assert nothing.get_xscale() == "linear"


def test_a_known_optimum_is_taken_from_the_loss(figures: list[Figure], tmp_path: Path):
    found = shown(figures, [run(optimum=1.0, losses=(4.0, 2.0, 1.5))], tmp_path)
    (axes,) = found["loss_steps.png"].axes
    assert axes.lines[0].get_ydata().tolist() == [3.0, 1.0, 0.5]
    assert "above the optimum" in axes.get_ylabel()


def test_a_picture_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        curves.draw([run()], tmp_path / "file")


def test_runs_are_put_together_by_all_but_the_seed():
    runs = [run(seed=0), run(seed=1), run(seed=0, lr=0.2), run("dadam"), run(seed=2)]
    assert [[each["seed"] for each in group.runs] for group in grouped(runs)] == [[0, 1, 2], [0], [0]]
    assert isinstance(grouped(runs)[0], Group)


def test_mean_and_spread_are_those_of_the_sample():
    assert spread([1.0, 2.0, 3.0]) == "2 ± 1"
    assert spread([1.25]) == "1.25"
    assert spread([1.0, None]) == "not finite in 1 of 2"


def test_columns_appear_where_there_is_something_in_them():
    def headings(runs: list[dict[str, Any]]) -> list[str]:
        return [str(column.header) for column in table(runs, "").columns]

    plain = headings([run()])
    assert not {"skew", "accuracy", "virtual s", "above optimum"} & set(plain)
    assert "skew" in headings([run(), run(skew=0.1)])
    assert "above optimum" in headings([run(optimum=0.5)])
    assert "skipped" in headings([run(), run(skipped=3)]) and "skipped" not in plain
    timed = run()
    timed["points"][-1].update(accuracy=0.5, seconds=3.0)
    assert {"accuracy", "virtual s"} <= set(headings([timed]))
    assert math.isclose(timed["points"][-1]["seconds"], 3.0)


def test_one_row_for_one_reason():
    def refused(algorithm: str, reason: str, seed: int | None = None) -> dict[str, Any]:
        shared = {"topology": "ring", "workers": 3, "skew": None, "lr": 0.1}
        return {**shared, "algorithm": algorithm, "seed": seed, "reason": reason}

    made = refusals([refused("a", "no.\n  Never."), refused("b", "no.\n  Never."), refused("c", "nan", 2)])
    assert made.row_count == 2
    cells = [list(column.cells) for column in made.columns]
    assert cells[0] == ["a, b", "c"] and cells[4] == ["all", "2"] and cells[5] == ["no. Never.", "nan"]
