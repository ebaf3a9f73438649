"""Draw the curves of docs/algorithms: validation loss over steps and over bytes sent, from the simulator.

    python scripts/draw_algorithms.py                        # all pages, about ten minutes on two cores
    python scripts/draw_algorithms.py --only slowmo choco    # some of them

Each picture has the algorithm beside D-PSGD on the same topology and beside SGD with the mean of all in every
step, which is what All-Reduce computes: 16 workers on a ring, shards skewed by label, each algorithm at
the rate of its row, one seed. The problem is a perceptron on digits where they are there, else logistic
regression.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from PIL import Image
from tqdm import tqdm

from hf_decentral import algorithms
from hf_decentral.errors import DataError
from hf_decentral.simulator import Problem, Run, problems, simulate

WORKERS, TOPOLOGY, SKEW, SEED = 16, "ring", 0.1, 0
DASHES = ("-", "--", "-.", ":")  # curves that lie upon each other stay visible
TICKS = (0.1, 0.2, 0.3, 0.5, 1, 2, 3)
COLOURS = 64  # of a picture's palette, which makes the files small
CURVES = Path(__file__).resolve().parent.parent / "docs" / "algorithms" / "curves"


class Line(NamedTuple):
    """One curve: what it is called, and what is simulated."""

    label: str
    algorithm: str
    topology: str = TOPOLOGY
    order: str | None = None


MEAN = Line("mean of all in every step", "dpsgd", "complete")
# Pages that compare something else than one algorithm with dpsgd.
SPECIAL: Mapping[str, tuple[Line, ...]] = {
    "dpsgd": (
        Line("dpsgd, atc", "dpsgd"),
        Line("dpsgd, cta", "dpsgd", order="cta"),
        Line("dpsgd, awc", "dpsgd", order="awc"),
        MEAN,
    ),
    "consensus_control": (
        Line("bound 0.5", "dpsgd", "above(0.5, ring)"),
        Line("bound 1", "dpsgd", "above(1.0, ring)"),
        Line("dpsgd", "dpsgd"),
        MEAN,
    ),
    "random_rings": (
        Line("random ring, awc", "dpsgd", "random_ring", "awc"),
        Line("ring, awc", "dpsgd", order="awc"),
        Line("delay by one", "dpsgd", "complete", "awc"),
        MEAN,
    ),
}


def lines(name: str) -> tuple[Line, ...]:
    """What the picture of a page compares."""
    return SPECIAL.get(name) or (Line(name, name), Line("dpsgd", "dpsgd"), MEAN)


def problem(name: str | None) -> Problem:
    """The problem of that name; None: digits where they are there."""
    if name is not None:
        return problems.build(name, seed=SEED)
    try:
        return problems.build("mnist-mlp", dim=32, seed=SEED)
    except DataError:
        return problems.build("logistic", seed=SEED)


def runner(chosen: Problem, steps: int) -> Callable[[Line], Run]:
    """Simulates a line, each once."""

    @cache
    def run(line: Line) -> Run:
        with tqdm(total=steps, desc=f"{line.algorithm}, {line.topology}", leave=False) as bar:
            return simulate(
                chosen,
                line.algorithm,
                line.topology,
                WORKERS,
                steps=steps,
                skew=SKEW,
                seed=SEED,
                record=max(1, steps // 40),
                progress=lambda done: bar.update(done - bar.n) and None,
                order=line.order,
            )

    return run


def draw(runs: Mapping[str, Run], path: Path) -> None:
    """Write one picture of two panels."""
    figure = Figure(figsize=(8, 3.1), dpi=80, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (label, run) in enumerate(runs.items()):
        losses = [point.loss for point in run.points]
        style = {"label": label, "color": f"C{place}", "linestyle": DASHES[place], "linewidth": 1.5}
        left.plot([point.step for point in run.points], losses, **style)
        right.plot([point.sent_bytes / 1e6 for point in run.points], losses, **style)
    first = next(iter(runs.values()))
    left.set_yscale("log")
    left.set_ylim(top=1.1 * first.points[0].loss)  # a run that diverges leaves the picture
    low, high = left.get_ylim()
    left.set_yticks([tick for tick in TICKS if low <= tick <= high])
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter(NullFormatter())
    left.set(xlabel="steps", ylabel="validation loss of the mean")
    right.set_xscale("log", nonpositive="mask")
    right.set(xlabel="MB sent by a worker")
    left.legend(fontsize=8, frameon=False)
    figure.suptitle(f"{first.problem}, {WORKERS} workers, skewed shards ({SKEW})", fontsize=9)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    pages = sorted({*algorithms.names(), *SPECIAL})
    parser.add_argument("--only", nargs="+", choices=pages, default=pages, metavar="NAME", help="pages")
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps of each run")
    parser.add_argument("--problem", choices=problems.names(), help="another one than the digits")
    parser.add_argument("--out", type=Path, default=CURVES, help="folder of the pictures")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = runner(problem(arguments.problem), arguments.steps)
    for name in tqdm(arguments.only, desc="pages", unit="page"):
        draw({line.label: run(line) for line in lines(name)}, arguments.out / f"{name}.png")


if __name__ == "__main__":
    main()
