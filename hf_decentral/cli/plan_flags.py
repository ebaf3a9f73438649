"""The flags of ``hf-decentral plan``, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from hf_decentral.cli.simulate_lists import of_workers
from hf_decentral.cluster.measured import Measured, read
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.planner import both_given, lacking
from hf_decentral.planner import units
from hf_decentral.planner.assumed import Figures, assumed, instead
from hf_decentral.planner.models import MODELS, parameters
from hf_decentral.topology.expression import split

_CLUSTER, _RUN, _OUTPUT = "The cluster, where it was not calibrated", "The run", "What is written"
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_MOST_PRICE, _MOST_STEPS = 1e6, 10**12


@dataclass(frozen=True)
class Flags:
    """All flags as they were typed."""

    cluster: Annotated[
        Path | None,
        Option(metavar="FILE", help="What `hf-decentral calibrate` wrote; flags beside it override it."),
    ] = None
    model: Annotated[
        str | None, Option(metavar="NAME", help=f"One of {', '.join(MODELS)}.", rich_help_panel=_CLUSTER)
    ] = None
    params: Annotated[
        str | None, Option(metavar="COUNT", help="Parameters: 124M, 1.5B.", rich_help_panel=_CLUSTER)
    ] = None
    dtype: Annotated[
        str | None,
        Option(help=f"Of the parameters: {', '.join(_WIDTHS)}. Left out: float32.", rich_help_panel=_CLUSTER),
    ] = None
    hosts: Annotated[int | None, Option(help="Number of hosts.", rich_help_panel=_CLUSTER)] = None
    workers_per_host: Annotated[
        int | None, Option(help="Workers on each, one a GPU as a rule.", rich_help_panel=_CLUSTER)
    ] = None
    link: Annotated[
        str | None,
        Option(metavar="RATE", help="Of a host's network, a direction: 25gbit.", rich_help_panel=_CLUSTER),
    ] = None
    intra_link: Annotated[
        str | None,
        Option(metavar="RATE", help="Inside a host: nvlink, pcie, or a rate.", rich_help_panel=_CLUSTER),
    ] = None
    latency_us: Annotated[
        float | None,
        Option(help="Microseconds of a message between hosts. Left out: 30.", rich_help_panel=_CLUSTER),
    ] = None
    step_ms: Annotated[
        float | None,
        Option(
            help="Milliseconds of a step of one worker alone: forward, backward, optimizer.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None
    step_cv: Annotated[
        float | None,
        Option(
            help="Standard deviation of forward and backward by their mean. Left out: 0.05.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None
    slow_worker: Annotated[
        str | None,
        Option(metavar="LIST", help="3=2: worker 3 takes twice as long.", rich_help_panel=_CLUSTER),
    ] = None
    global_batch: Annotated[
        float | None,
        Option(help="Samples (or tokens) of a step over all workers.", rich_help_panel=_RUN),
    ] = None
    steps: Annotated[int | None, Option(help="Steps of the run, for hours.", rich_help_panel=_RUN)] = None
    price: Annotated[
        float | None, Option(help="Money per worker and hour, for the cost.", rich_help_panel=_RUN)
    ] = None
    topology: Annotated[
        str | None,
        Option(metavar="LIST", help="Compare only these: 'aer,every(8, ring)'.", rich_help_panel=_RUN),
    ] = None
    averaging: Annotated[
        str | None, Option(metavar="LIST", help="Compare only these: plain,int8.", rich_help_panel=_RUN)
    ] = None
    json: Annotated[
        Path | None, Option(metavar="FILE", help="Write the rows there.", rich_help_panel=_OUTPUT)
    ] = None
    png: Annotated[
        Path | None,
        Option(metavar="FILE", help="Draw step times over the number of workers.", rich_help_panel=_OUTPUT),
    ] = None
    write: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write a file for `accelerate launch`.", rich_help_panel=_OUTPUT),
    ] = None
    force: Annotated[bool, Option("--force", help="Let --write replace a file.", rich_help_panel=_OUTPUT)] = (
        False
    )

    def measured(self) -> tuple[Measured, list[str]]:
        """The cluster, and what a reader should know of it.

        Raises:
            SettingsError: a file or a figure that cannot be meant, or something that is lacking.
        """
        known = None if self.cluster is None else read(self.cluster)
        figures = self._figures(known)
        if known is None:
            made = assumed(figures, self.model or f"{self.params} parameters")
            return made, ["nothing was measured: assumed figures, with wide intervals (docs/planner.md)"]
        return instead(known, figures, "--model" if self.model else "--params")

    def _figures(self, known: Measured | None) -> Figures:
        size = self._bytes()
        step = None
        if self.step_ms is not None:
            read_bytes = size or (known.work.parameter_bytes if known is not None else 0.0)
            step = units.step_seconds("--step-ms", self.step_ms, read_bytes)
        latency = self.latency_us
        if latency is not None:
            question = "did you mean microseconds? 30 is usual, and 1000 is a millisecond"
            latency = (
                units.within("--latency-us", latency, 0, units.LONGEST_US, "microseconds", question) / 1e6
            )
        if self.step_cv is not None:
            question = "0.05 is a spread of 5 %; is yours in percent?"
            units.within("--step-cv", self.step_cv, 0, 2, "", question)
        slow = of_workers("--slow-worker", self.slow_worker, "3=2,5=1.5") if self.slow_worker else None
        return Figures(
            parameter_bytes=size,
            hosts=self.hosts,
            workers_per_host=self.workers_per_host,
            link=None if self.link is None else units.link("--link", self.link),
            intra_link=None if self.intra_link is None else units.link("--intra-link", self.intra_link),
            latency=latency,
            step_seconds=step,
            step_cv=self.step_cv,
            slow=slow,
            dtype=self.dtype,
        )

    def _bytes(self) -> float | None:
        if self.dtype is not None and self.dtype not in _WIDTHS:
            raise unknown_name("dtype", self.dtype, _WIDTHS)
        if self.model is not None and self.params is not None:
            raise both_given("--model", "--params")
        if self.model is None and self.params is None:
            if self.dtype is not None:
                raise lacking("--model or --params", "for --dtype to count the bytes of")
            return None
        count = float(parameters(self.model)) if self.model else units.count("--params", self.params or "")
        return count * _WIDTHS[self.dtype or "float32"]

    @property
    def topologies(self) -> list[str] | None:
        """Those to compare; None: those worth naming."""
        return None if self.topology is None else _listed("--topology", self.topology)

    @property
    def averagings(self) -> list[str] | None:
        """Those to compare; None: those worth naming."""
        return None if self.averaging is None else _listed("--averaging", self.averaging)

    def check(self) -> None:
        """See that what the run is to do can be meant.

        Raises:
            SettingsError: it cannot.
        """
        if self.steps is not None and not 1 <= self.steps <= _MOST_STEPS:
            raise out_of_range("--steps", self.steps, "a whole number of steps, 1 or more", "leave it out")
        if self.global_batch is not None:
            question = "count the samples of all workers in one optimizer step"
            units.within("--global-batch", self.global_batch, 1, 1e12, "samples", question)
        if self.price is not None:
            question = "give what one worker costs in an hour"
            units.within("--price", self.price, 0, _MOST_PRICE, "a worker and hour", question)


def _listed(flag: str, text: str) -> list[str]:
    found = list(dict.fromkeys(split(text)))
    if not found:
        raise out_of_range(flag, text, "names with commas between", "leave it out for those worth naming")
    return found
