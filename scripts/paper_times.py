"""The times that "From Promise to Practice" (arXiv 2410.11998) published, beside those of the runtime model.

    python scripts/paper_times.py                # a table, in ten seconds
    python scripts/paper_times.py --markdown     # the same as Markdown, as docs/runtime_model.md has it

Each published pair is a baseline and what replaces it. Per row one number that the paper does not give is
chosen such that the baseline comes out as published; the other time is then predicted. What else had to be
assumed stands in the row. The paper's tables tell hosts and workers; the model of three of the pairs, link
rates (but for one pair) and compute times were not at hand.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from hf_decentral import topology
from hf_decentral.cluster.iteration import Method, step_seconds
from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.measured import EVEN, Measured, Piece, Work
from hf_decentral.planner.assumed import spread
from hf_decentral.planner.payloads import COMBINE_PASSES, STEP_PASSES
from hf_decentral.topology import Topology

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
        how = {"aer": "AER, one copy" if self.shards else "AER, one ring", "complete": "complete"}[
            self.sparse
        ]
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
    Assumed(GPT, "100gbit", NVLINK, 4 * GPT2, A100, "float32", pieces=gpt2_pieces()),
    Assumed(GPT, "200gbit", NVLINK, 4 * GPT2, A100, "float32", pieces=gpt2_pieces()),
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
    pair = assumed.pair
    workers, hosts = pair.hosts * pair.each, hosts_of(pair)
    rounds = topology.build(assumed.sparse, workers, hosts)
    if assumed.shards:
        rounds = _by_shards(rounds, hosts)
    everybody = topology.build("complete", workers)
    if assumed.size is None:  # in one piece
        whole = math.inf
        return Method(everybody, bucket_bytes=whole, behind=True), Method(
            rounds, bucket_bytes=whole, behind=True
        )
    baseline = Method(rounds) if pair is GRADIENTS else Method()
    return baseline, Method(rounds, bucket_bytes=assumed.size / _PIECES, behind=True)


def _by_shards(rounds: Topology, hosts: tuple[int, ...]) -> Topology:
    """Two hosts that average with each other send one copy, as NCCL's trees do among two hosts."""
    return replace(rounds, hosts=hosts)


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


COLUMNS = (
    "pair",
    "assumed",
    "chosen",
    "baseline, ms",
    "published, ms",
    "model, ms",
    "error",
    "gain",
    "model's",
)


def row(found: Found) -> tuple[str, ...]:
    """The cells of :data:`COLUMNS`."""
    pair = found.assumed.pair
    shown = (pair.what, found.assumed.words)
    published = f"{pair.baseline / MS:.2f}", f"{pair.other / MS:.2f}"
    gain = f"{1 - pair.other / pair.baseline:.1%}"
    if not found.free:
        told = f"none: {found.baseline / MS:.0f} ms without computing"
        return (*shown, told, *published, "", "", gain, "")
    predicted_gain = f"{1 - found.other / pair.baseline:.1%}"
    return (
        *shown,
        found.free,
        *published,
        f"{found.other / MS:.2f}",
        f"{found.error:+.1%}",
        gain,
        predicted_gain,
    )


def markdown(rows: list[tuple[str, ...]]) -> str:
    """A table for a page."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    told = parser.parse_args()
    rows = [row(predicted(each)) for each in CASES]
    if told.markdown:
        print(markdown(rows))
        return
    table = Table(*COLUMNS)
    for cells in rows:
        table.add_row(*cells)
    Console().print(table)


if __name__ == "__main__":
    main()
