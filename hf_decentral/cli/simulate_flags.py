"""The flags of ``hf-decentral simulate`` and what ``--help`` says of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Option

from hf_decentral import algorithms

_TRAINING, _CLOCK, _OUTPUT = "How each run trains", "Time, and who takes part", "What is kept"


@dataclass(frozen=True)
class Flags:
    """All flags as they were typed; lists are texts with commas.

    Attributes:
        SHARED: the flags that all runs have in common and on which their outcome depends.
    """

    SHARED: ClassVar[tuple[str, ...]] = (
        *("problem", "dim", "steps", "batch", "averaging", "order", "period", "nan", "record"),
        *("compute", "bandwidth", "latency", "slow_worker", "deaths", "joins"),
    )

    problem: Annotated[
        str, Option(help="What is trained: quadratic, logistic, mnist-mlp, mnist-cnn or char-gpt.")
    ] = "quadratic"
    algorithms: Annotated[
        str, Option(metavar="LIST", help=f"Some of these, or all: {', '.join(algorithms.names())}.")
    ] = "dpsgd,dadam"
    topology: Annotated[
        str, Option(metavar="LIST", help="As `hf-decentral topology list` names them, or 'every(8, ring)'.")
    ] = "ring"
    workers: Annotated[str, Option(metavar="LIST", help="Numbers of workers.")] = "16"
    seeds: Annotated[
        str,
        Option(metavar="N|LIST", help="How many: 3 stands for 0,1,2. Or a list with a comma: 4,7."),
    ] = "1"
    skew: Annotated[
        str,
        Option(
            metavar="LIST",
            help="How samples are dealt out: iid, or the alpha of a Dirichlet distribution over labels.",
        ),
    ] = "iid"
    steps: Annotated[int, Option(help="Optimizer steps of a run.", rich_help_panel=_TRAINING)] = 500
    dim: Annotated[
        int | None,
        Option(help="Size of the problem: numbers of a vector, or width.", rich_help_panel=_TRAINING),
    ] = None
    lr: Annotated[
        str | None,
        Option(
            metavar="RATE|LIST",
            help="One learning rate for all, or 0.1,dadam=0.003. Left out: that of the algorithm.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    batch: Annotated[int | None, Option(help="Rows of a worker's batch.", rich_help_panel=_TRAINING)] = None
    averaging: Annotated[
        str | None,
        Option(help="Another averaging method than the algorithm's: int4.", rich_help_panel=_TRAINING),
    ] = None
    order: Annotated[
        str | None, Option(help="Another order than the algorithm's.", rich_help_panel=_TRAINING)
    ] = None
    period: Annotated[
        int | None, Option(help="Steps from one round to the next.", rich_help_panel=_TRAINING)
    ] = None
    nan: Annotated[
        str,
        Option(
            help="stop where a worker's gradient is not finite, or skip that gradient.",
            rich_help_panel=_TRAINING,
        ),
    ] = "stop"
    record: Annotated[
        int | None, Option(help="Steps from one point of a curve to the next.", rich_help_panel=_TRAINING)
    ] = None
    compute: Annotated[
        str | None,
        Option(
            metavar="LAW",
            help="Seconds a step computes: 0.1, 'exponential(0.05, 0.05)', 'gaussian(0.1, 0.02)', "
            "'lognormal(0.1, 0.3)'.",
            rich_help_panel=_CLOCK,
        ),
    ] = None
    bandwidth: Annotated[
        str | None,
        Option(metavar="RATE", help="Of each worker's link: 1gbit, 200mbit.", rich_help_panel=_CLOCK),
    ] = None
    latency: Annotated[
        float | None, Option(help="Seconds until a message begins to arrive.", rich_help_panel=_CLOCK)
    ] = None
    slow_worker: Annotated[
        str | None,
        Option(
            "--slow-worker",
            metavar="LIST",
            help="Factors on the compute time of some: 3=2.0 makes worker 3 take twice as long.",
            rich_help_panel=_CLOCK,
        ),
    ] = None
    deaths: Annotated[
        str | None,
        Option(
            metavar="LIST",
            help="Workers that leave, and before which step: 3=100,5=200. For algorithms without a global "
            "step: at which second.",
            rich_help_panel=_CLOCK,
        ),
    ] = None
    joins: Annotated[
        str | None,
        Option(metavar="LIST", help="Workers that come, in the same way.", rich_help_panel=_CLOCK),
    ] = None
    out: Annotated[
        Path, Option(metavar="FOLDER", help="Finished runs and plots.", rich_help_panel=_OUTPUT)
    ] = Path("runs/simulate")
    json: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write all runs there as JSON.", rich_help_panel=_OUTPUT),
    ] = None
    resume: Annotated[
        bool,
        Option("--resume", help="Keep what FOLDER has of these runs, and go on.", rich_help_panel=_OUTPUT),
    ] = False
