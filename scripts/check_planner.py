"""Does the planner tell the truth? Predicted against measured step times, on clusters out of namespaces.

For each cluster of a plan: `hf-decentral calibrate` on it, the planner's answer from that file alone, and
then `hf-decentral bench`, whose step times were not used before. Needs root and iproute2.

    python scripts/check_planner.py --output_dir found                # an hour, of which most is training
    python scripts/check_planner.py --output_dir found --only 4 7     # two clusters of the list
    python scripts/check_planner.py --output_dir found --show         # only print what was found so far
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.table import Table
from tqdm import tqdm
from transformers import HfArgumentParser

from hf_decentral import plan
from hf_decentral.bench import pictures
from hf_decentral.bench.variants import TABLE
from hf_decentral.cluster import measured

PLAN = Path(__file__).parent / "plans" / "planner.yaml"
VARIANTS = ("ddp", "complete", "ring", "aer", "aer+bf16", "aer+int8")
BETWEEN_HOSTS = ("hierarchical",)  # the same as others where every host has one worker
BEST = 3


@dataclass
class Arguments:
    output_dir: str = field(metadata={"help": "folder of the results; clusters found there are not repeated"})
    plan: str = field(default=str(PLAN), metadata={"help": "YAML list of clusters"})
    only: list[int] | None = field(default=None, metadata={"help": "numbers of the list, from 0"})
    blocks: int = field(default=3, metadata={"help": "blocks of each variant; they alternate"})
    steps: int = field(default=12, metadata={"help": "counted steps of a block"})
    seconds: float = field(default=40.0, metadata={"help": "how long each cluster is calibrated"})
    force: bool = field(default=False, metadata={"help": "take calibrations too that would be refused"})
    show: bool = field(default=False, metadata={"help": "measure nothing"})


class Compared(NamedTuple):
    """One variant on one cluster, in seconds of a step.

    Attributes:
        variant: as the benchmark calls it.
        predicted: by the planner.
        measured: the benchmark's median.
        low: its lower quartile.
        high: its upper quartile.
    """

    variant: str
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.measured - 1


def ranked(found: Sequence[Compared], best: int = BEST) -> bool:
    """Whether the planner's ``best`` fastest are the measured ones, in their order.

    Two whose measured quartiles overlap have no order.
    """
    chosen = sorted(found, key=lambda each: each.predicted)
    for place, each in enumerate(chosen[:best]):
        if any(other.high < each.low for other in chosen[place + 1 :]):
            return False
    return True


def predictions(cluster: Path, variants: Sequence[str]) -> dict[str, float]:
    """The planner's step times for variants of the benchmark, from a file of ``calibrate``."""
    ours = [name.split("+") for name in variants if name not in TABLE]
    topologies = list(dict.fromkeys(name for name, *_ in ours))
    methods = list(dict.fromkeys(["plain", *(rest[0] for _, *rest in ours if rest)]))
    told = plan(measured.read(cluster), topologies=["allreduce", *topologies], averagings=methods)
    found = {}
    for row in told.rows:
        name = "ddp" if row.topology == "allreduce" else row.topology
        found[name if row.codec == "plain" else f"{name}+{row.codec}"] = row.step_seconds
    return {name: found[name] for name in variants}


def measure(case: dict[str, Any], folder: Path, arguments: Arguments) -> None:
    """Calibrate and benchmark one cluster; both files are whole or absent.

    Raises:
        CalledProcessError: one of them failed, or refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = [word for name, value in case.items() for word in (f"--{name}", str(value))]
    variants = [*VARIANTS, *(BETWEEN_HOSTS if case["workers_per_host"] > 1 else ())]
    bench = ["--variants", ",".join(["none", *variants]), "--blocks", str(arguments.blocks)]
    out = ["--seconds", str(arguments.seconds), "--out", str(folder / "cluster.json")]
    forced = ["--force"] if arguments.force else []
    _run(["calibrate", *flags, *out, *forced], folder / "calibrate.txt")
    _run(
        ["bench", *flags, *bench, "--steps", str(arguments.steps), "--json", str(folder / "bench.json")],
        folder / "bench.txt",
    )


def _run(words: Sequence[str], log: Path) -> None:
    with log.open("w", encoding="utf-8") as stream:
        command = [sys.executable, "-m", "hf_decentral.cli", *words]
        subprocess.run(command, check=True, stdout=stream, stderr=subprocess.STDOUT)


def compare(folder: Path) -> list[Compared]:
    """What was found of one cluster."""
    cases = json.loads((folder / "bench.json").read_text(encoding="utf-8"))["cases"]
    cases = [case for case in cases if case["variant"] != "none"]
    told = predictions(folder / "cluster.json", [case["variant"] for case in cases])
    return [
        Compared(case["variant"], told[case["variant"]], case["step_seconds"], case["low"], case["high"])
        for case in cases
    ]


def name_of(case: dict[str, Any]) -> str:
    """A cluster in a few words, which is its folder too."""
    words = f"{case['hosts']}x{case['workers_per_host']}_{case['link']}_{case['emulate_ms']}ms"
    slow = f"_slow{case['slow_worker']}x{case['slowdown']}" if "slow_worker" in case else ""
    return f"{words}_{case['emulate_mb']}mb{slow}"


def show(found: dict[str, list[Compared]], path: Path) -> None:
    """Print the table, and write and draw it."""
    table = Table(header_style="bold")
    for heading in ("cluster", "variant", "predicted, ms", "measured, ms", "quartiles", "error"):
        table.add_column(heading, justify="left" if heading in ("cluster", "variant") else "right")
    for cluster, compared in found.items():
        for each in sorted(compared, key=lambda one: one.measured):
            spread = f"{each.low * 1e3:.0f} to {each.high * 1e3:.0f}"
            times = f"{each.predicted * 1e3:.0f}", f"{each.measured * 1e3:.0f}"
            table.add_row(cluster, each.variant, *times, spread, f"{each.error:+.1%}")
        table.add_section()
    Console(width=124).print(table)
    errors = sorted(abs(each.error) for compared in found.values() for each in compared)
    right = sum(ranked(compared) for compared in found.values())
    summary = {
        "cases": len(errors),
        "median_error": median(errors),
        "worst_error": errors[-1],
        "ranked_right": right,
        "clusters": len(found),
    }
    print(
        f"{len(errors)} times on {len(found)} clusters: median error {summary['median_error']:.1%}, worst "
        f"{summary['worst_error']:.1%}; the {BEST} best in their order on {right} of {len(found)}"
    )
    for cluster, compared in found.items():
        if not ranked(compared):
            print(f"  not on {cluster}")
    rows = {cluster: [each._asdict() for each in compared] for cluster, compared in found.items()}
    text = json.dumps({**summary, "found": rows}, indent=1) + "\n"
    (path / "planner.json").write_text(text, encoding="utf-8")
    draw(found, path / "planner.png")


def draw(found: dict[str, list[Compared]], path: Path) -> None:
    """Predicted over measured, a colour for each variant."""
    figure = pictures.figure(6, 6)
    axes = figure.subplots()
    everything = [each for compared in found.values() for each in compared]
    for variant in dict.fromkeys(each.variant for each in everything):
        these = [each for each in everything if each.variant == variant]
        axes.loglog([e.measured for e in these], [e.predicted for e in these], "o", ms=5, label=variant)
    ends = [min(e.measured for e in everything) * 0.9, max(e.measured for e in everything) * 1.1]
    axes.loglog(ends, ends, "-", color="0.4", linewidth=0.8)
    axes.fill_between(ends, [0.93 * e for e in ends], [1.07 * e for e in ends], color="0.9", label="7 %")
    axes.set(xlabel="measured seconds of a step", ylabel="predicted")
    axes.legend(fontsize=8)
    pictures.save(figure, path)


def main() -> None:
    """Measure what is missing, and tell what was found."""
    arguments: Arguments = HfArgumentParser(Arguments, description=__doc__).parse_args_into_dataclasses()[0]
    cases = yaml.safe_load(Path(arguments.plan).read_text(encoding="utf-8"))
    numbers = range(len(cases)) if arguments.only is None else arguments.only
    if wrong := [number for number in numbers if not 0 <= number < len(cases)]:
        sys.exit(f"--only {wrong}: {arguments.plan} has clusters 0 to {len(cases) - 1}")
    chosen = [cases[number] for number in numbers]
    folder = Path(arguments.output_dir)
    failed = []
    for case in tqdm(chosen, desc="clusters", disable=arguments.show):
        if not arguments.show and not (folder / name_of(case) / "bench.json").exists():
            try:
                measure(case, folder / name_of(case), arguments)
            except subprocess.CalledProcessError as error:
                failed.append(f"{name_of(case)}: {error.cmd[3]} failed, see its log beside")
    there = {name_of(case): folder / name_of(case) for case in chosen}
    found = {name: compare(where) for name, where in there.items() if (where / "bench.json").exists()}
    if found:
        show(found, folder)
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
