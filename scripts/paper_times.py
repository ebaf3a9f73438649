"""The times that "From Promise to Practice" (arXiv 2410.11998) published, beside those of the runtime model.

    python scripts/paper_times.py                # a table, in ten seconds
    python scripts/paper_times.py --markdown     # the same as Markdown, as docs/runtime_model.md has it
    python scripts/paper_times.py --json times.json --png times.png

Each published pair is a baseline and what replaces it. Per row one number that the paper does not give is
chosen such that the baseline comes out as published; the other time is then predicted. What else had to be
assumed stands in the row: of three pairs the model, of all but one the rate of links.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from hf_decentral import topology
from hf_decentral.bench import pictures, report
from hf_decentral.cluster.iteration import Method, step_seconds
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.measured import EVEN, Measured, Piece, Work
from hf_decentral.planner.assumed import spread
from hf_decentral.planner.payloads import COMBINE_PASSES, STEP_PASSES

MS = 1e-3
A100, A40, T4 = 1555e9, 696e9, 320e9
"""Bytes per second of the GPUs' memory, from their data sheets."""
NVLINK, PCIE4, PCIE3 = "2000gbit", "160gbit", "40gbit"
"""Inside a host: what collectives reach on NVLink, on a PCIe 4 bus, and on a PCIe 3 bus of eight GPUs."""
GPT2, BASE, BIG, RESNET = 124.4e6, 65e6, 213e6, 25.6e6
"""Parameters of GPT-2 small, of the two transformers of the paper's translation, and of ResNet-50."""
NOISE, LENGTHS = 0.01, 0.05
"""Coefficients of variation assumed for batches of one size, and for sentences of many lengths."""
_HALVINGS = 24
_PIECES = 32  # in which parameters leave behind a step
_FIRST, _LAYERS = 0.31, 12  # GPT-2: the head's share of backward, which has 31 % of the multiplications


def gpt2_pieces() -> tuple[Piece, ...]:
    """Twelve blocks; the embedding, which is the head too, has its gradient when backward ends."""
    block = 7.08e6 / GPT2
    blocks = [(_FIRST + (1 - _FIRST) * (k + 1) / _LAYERS, block) for k in range(_LAYERS)]
    return (*blocks[:-1], (1.0, block), (1.0, 1 - _LAYERS * block))


class Pair(NamedTuple):
    """Two published times.

    Attributes:
        what: was measured.
        hosts: their number.
        each: workers on each.
        baseline: seconds of the slower way, of a step or of an averaging.
        other: seconds of the faster one.
    """

    what: str
    hosts: int
    each: int
    baseline: float
    other: float


GPT = Pair("GPT-2 small, All-Reduce → AER", 4, 4, 32.461 * 3600 / 600_000, 30.41 * 3600 / 600_000)
AVERAGING = Pair("averaging alone, complete → AER", 4, 4, 55.31 / 8196, 29.55 / 8196)
GRADIENTS = Pair("with → without neighbours' gradients", 2, 4, 225.09 * MS, 200.43 * MS)
A40S = Pair("32 A40, All-Reduce → decentralized", 8, 4, 188.5 * MS, 67.9 * MS)
T4S = Pair("64 T4, All-Reduce → decentralized", 8, 8, 167.3 * MS, 122.2 * MS)


@dataclass(frozen=True)
class Assumed:
    """What a pair is explained by.

    Attributes:
        pair: the published times.
        link: rate of a host's link.
        inside: rate inside a host.
        size: bytes that travel; None: chosen such that the baseline comes out.
        memory: bytes per second of the GPU's memory, which the optimizer and the averages wait for.
        model: in words.
        cv: coefficient of variation of compute times.
        shards: in AER, two hosts exchange one copy of the parameters; else one ring passes all their workers.
        sparse: topology of the faster way.
        pieces: gradients, as backward makes them.
    """

    pair: Pair
    link: str
    inside: str
    size: float | None
    memory: float
    model: str
    cv: float = NOISE
    shards: bool = False
    sparse: str = "aer"
    pieces: tuple[Piece, ...] = field(default=EVEN, repr=False)

    @property
    def words(self) -> str:
        """For the table."""
        how = self.sparse if self.sparse != "aer" else f"AER, one {'copy' if self.shards else 'ring'}"
        cv = "" if self.size is None else f", cv {self.cv:.0%}"
        rates = f"{self.link.removesuffix('gbit')} and {self.inside.removesuffix('gbit')} Gbit/s"
        return f"{self.model}; {rates}; {how}{cv}"


class Found(NamedTuple):
    """What the model says.

    Attributes:
        assumed: what it was told.
        free: the chosen number, in words; empty where none gives the baseline.
        baseline: seconds of the baseline; it is the published one, or the least there can be.
        other: seconds of the faster way, NaN where no number gives the baseline.
    """

    assumed: Assumed
    free: str
    baseline: float
    other: float

    @property
    def error(self) -> float:
        """Of the predicted time, relative."""
        return self.other / self.assumed.pair.other - 1


CASES = (
    Assumed(GPT, "25gbit", NVLINK, 4 * GPT2, A100, "float32", pieces=gpt2_pieces()),
    Assumed(GPT, "25gbit", NVLINK, 2 * GPT2, A100, "16-bit", pieces=gpt2_pieces()),
    Assumed(GPT, "100gbit", NVLINK, 2 * GPT2, A100, "16-bit", pieces=gpt2_pieces()),
    Assumed(GPT, "100gbit", NVLINK, 4 * GPT2, A100, "float32", pieces=gpt2_pieces()),
    Assumed(GPT, "200gbit", NVLINK, 4 * GPT2, A100, "float32", pieces=gpt2_pieces()),
    Assumed(GPT, "400gbit", NVLINK, 4 * GPT2, A100, "float32", pieces=gpt2_pieces()),
    Assumed(AVERAGING, "25gbit", PCIE4, None, A40, "any size"),
    Assumed(AVERAGING, "25gbit", PCIE4, None, A40, "any size", shards=True),
    Assumed(AVERAGING, "200gbit", NVLINK, None, A100, "any size"),
    Assumed(GRADIENTS, "100gbit", NVLINK, 4 * BIG, A100, "transformer big", LENGTHS, sparse="complete"),
    Assumed(GRADIENTS, "200gbit", NVLINK, 4 * BIG, A100, "transformer big", LENGTHS, sparse="complete"),
    Assumed(GRADIENTS, "200gbit", NVLINK, 4 * BIG, A100, "transformer big", LENGTHS),
    Assumed(A40S, "25gbit", PCIE4, 4 * BASE, A40, "transformer base", LENGTHS),
    Assumed(A40S, "25gbit", PCIE4, 4 * BASE, A40, "transformer base", LENGTHS, shards=True),
    Assumed(A40S, "25gbit", PCIE4, 4 * RESNET, A40, "ResNet-50"),
    Assumed(T4S, "25gbit", PCIE3, 4 * BASE, T4, "transformer base", LENGTHS, shards=True),
    Assumed(T4S, "25gbit", PCIE3, 4 * RESNET, T4, "ResNet-50"),
)


def hosts_of(pair: Pair) -> tuple[int, ...]:
    """The host of each worker."""
    return tuple(host for host in range(pair.hosts) for _ in range(pair.each))


def measured(assumed: Assumed, compute: float, size: float) -> Measured:
    """The cluster, were a step's compute seconds and the bytes such."""
    pair = assumed.pair
    local = 0.0 if assumed.size is None else STEP_PASSES * size / assumed.memory
    cluster = Cluster(
        spread(compute, 0.0 if assumed.size is None else assumed.cv),
        link=assumed.link,
        latency=30e-6,
        hosts=hosts_of(pair),
        inside=assumed.inside,
        inside_latency=5e-6,
    )
    combine = COMBINE_PASSES / STEP_PASSES * local
    work = Work(size, local_seconds=local, combine_seconds=combine, pieces=assumed.pieces)
    return Measured(pair.hosts * pair.each, cluster, work)


def methods(assumed: Assumed) -> tuple[Method, Method]:
    """The baseline and what replaces it."""
    pair, hosts = assumed.pair, hosts_of(assumed.pair)
    rounds = topology.build(assumed.sparse, len(hosts), hosts)
    if assumed.shards:  # two hosts that average with each other send one copy, as NCCL's trees do
        rounds = replace(rounds, hosts=hosts)
    piece = math.inf if assumed.size is None else assumed.size / _PIECES
    baseline = Method(rounds) if pair is GRADIENTS else Method()
    if pair is AVERAGING:
        baseline = Method(topology.build("complete", len(hosts)), bucket_bytes=piece, behind=True)
    return baseline, Method(rounds, bucket_bytes=piece, behind=True)


def predicted(assumed: Assumed) -> Found:
    """Choose the free number by the baseline, and predict the other time."""
    baseline, other = methods(assumed)
    target, size = assumed.pair.baseline, assumed.size

    def at(free: float) -> Measured:
        return measured(assumed, 1e-9, free) if size is None else measured(assumed, free, size)

    def seconds(free: float) -> float:
        return step_seconds(at(free), baseline)[0]

    least, most = (1.0, 1e10) if size is None else (1e-3 * target, target)
    if seconds(least) > target:
        return Found(assumed, "", seconds(least), math.nan)
    free = _where(seconds, target, least, most)
    words = f"{free / 1e6:.1f} MB" if size is None else f"{free / MS:.1f} ms computing"
    return Found(assumed, words, seconds(free), step_seconds(at(free), other)[0])


def _where(growing: Callable[[float], float], target: float, least: float, most: float) -> float:
    for _ in range(_HALVINGS):
        middle = math.sqrt(least * most)
        least, most = (middle, most) if growing(middle) < target else (least, middle)
    return math.sqrt(least * most)


WORDS = ("pair", "assumed", "chosen")
NUMBERS = ("baseline, ms", "published, ms", "model, ms", "error", "gain", "model's")


def row(found: Found) -> tuple[str, ...]:
    """The cells of :data:`WORDS` and :data:`NUMBERS`."""
    pair = found.assumed.pair
    published = f"{pair.baseline / MS:.2f}", f"{pair.other / MS:.2f}"
    told = found.free or f"none: {found.baseline / MS:.0f} ms without computing"
    model = error = gain = ""
    if found.free:
        model, error = f"{found.other / MS:.2f}", f"{found.error:+.1%}"
        gain = f"{1 - found.other / pair.baseline:.1%}"
    gained = f"{1 - pair.other / pair.baseline:.1%}"
    return pair.what, found.assumed.words, told, *published, model, error, gained, gain


def table(rows: list[tuple[str, ...]]) -> Table:
    """A table for people."""
    made = Table(*WORDS)
    for heading in NUMBERS:
        made.add_column(heading, justify="right")
    for cells in rows:
        made.add_row(*cells)
    return made


def entry(found: Found) -> dict[str, Any]:
    """A row for programs, times in seconds; None where no number gives the baseline."""
    pair = found.assumed.pair
    return {
        "pair": pair.what,
        "assumed": found.assumed.words,
        "chosen": found.free or None,
        "baseline_seconds": pair.baseline,
        "published_seconds": pair.other,
        "model_seconds": found.other if found.free else None,
        "error": found.error if found.free else None,
    }


def draw(found: list[Found], path: Path) -> None:
    """Gains over the baseline, published and predicted."""
    told = [each for each in found if each.free]
    figure = pictures.figure(9, 0.35 * len(told) + 0.8)
    axes, places = figure.subplots(), range(len(told))
    published = [100 * (1 - each.assumed.pair.other / each.assumed.pair.baseline) for each in told]
    model = [100 * (1 - each.other / each.assumed.pair.baseline) for each in told]
    axes.plot(published, places, "k|", label="published", markersize=12)
    axes.plot(model, places, "o", label="model", fillstyle="none")
    names = [f"{each.assumed.pair.what.partition(',')[0]}: {each.assumed.words}" for each in told]
    axes.set_yticks(places, names, fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="% of the baseline's time that is gained", xlim=(0, 100))
    axes.grid(axis="x", alpha=0.3)
    axes.legend()
    pictures.save(figure, path)


def main() -> None:
    """Print the table, and write what is asked for."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the gains there")
    told = parser.parse_args()
    found = [predicted(each) for each in CASES]
    rows = [row(each) for each in found]
    if told.json:
        report.write_json(told.json, {"rows": [entry(each) for each in found]})
    if told.png:
        draw(found, told.png)
    if told.markdown:
        for cells in ((*WORDS, *NUMBERS), ("---",) * len(rows[0]), *rows):
            print(f"| {' | '.join(cells)} |")
    else:
        Console().print(table(rows))


if __name__ == "__main__":
    main()
