"""What ``hf-decentral simulate`` is told: its flags as they were typed, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Option

from hf_decentral import algorithms, topology
from hf_decentral import averaging as methods
from hf_decentral.cli.simulate_lists import names, positive, values, whole_numbers
from hf_decentral.cluster.laws import Cluster
from hf_decentral.errors import SettingsError, TopologyError, out_of_range, unknown_name
from hf_decentral.optim.plan import Order
from hf_decentral.topology.expression import split

_TRAINING, _CLOCK, _OUTPUT = "How each run trains", "A virtual clock", "What is kept"


@dataclass(frozen=True)
class Settings:
    """All flags as they were typed; lists are texts with commas. A property gives what is meant.

    Attributes:
        SHARED: the flags that all runs have in common and on which their outcome depends.
    """

    SHARED: ClassVar[tuple[str, ...]] = (
        *("problem", "dim", "steps", "batch", "averaging", "order", "period", "nan", "record"),
        *("compute", "bandwidth", "latency", "slow_worker"),
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

    def check(self) -> None:
        """See that all of it can be meant, as far as that is known before a run.

        Raises:
            SettingsError: something that cannot.
        """
        for name in ("steps", "dim", "batch", "period", "record"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise out_of_range(f"--{name}", value, "a whole number, 1 or more", "raise it")
        if self.averaging is not None:
            methods.build(self.averaging)
        orders = [order.value for order in Order]
        if self.order is not None and self.order not in orders:
            raise unknown_name("order", self.order, orders)
        # Here: they bring the Trainer's libraries.
        from hf_decentral.simulator import problems
        from hf_decentral.simulator.engine import NAN

        if self.problem not in problems.names():
            raise unknown_name("problem", self.problem, problems.names())
        if self.nan not in NAN:
            raise unknown_name("answer to NaN", self.nan, NAN)
        self.lr_of(self.algorithm_names[0])
        _ = self.cluster, self.seed_numbers, self.skews
        for name in self.topology_names:
            self._check_topology(name)

    def _check_topology(self, name: str) -> None:
        """Refuse what is no topology for any number of workers; one that cannot serve some is another matter.

        Raises:
            SettingsError: an unknown name, or a text that cannot be read.
        """
        problem: SettingsError | None = None
        for workers in self.worker_counts:
            try:
                topology.build(name, workers)
            except SettingsError as error:
                problem = error
            except TopologyError:
                return
            else:
                return
        if problem is not None:
            raise problem

    @property
    def algorithm_names(self) -> list[str]:
        """The algorithms, each once.

        Raises:
            SettingsError: one that does not exist, or none.
        """
        found = names("--algorithms", self.algorithms, algorithms.names())
        for name in found:
            algorithms.build(name)
        return found

    @property
    def topology_names(self) -> list[str]:
        """The topologies, each once; whether one can serve a number of workers is not looked at.

        Raises:
            SettingsError: none.
        """
        return names("--topology", self.topology, topology.names())

    @property
    def worker_counts(self) -> list[int]:
        """The numbers of workers, each once.

        Raises:
            SettingsError: something else than whole numbers of 1 or more.
        """
        return whole_numbers("--workers", self.workers, 1, "write for example 16 or 8,64,512")

    @property
    def seed_numbers(self) -> list[int]:
        """The seeds, each once.

        Raises:
            SettingsError: neither a number of them nor a list.
        """
        advice = "3 stands for the seeds 0, 1 and 2, and '3,' for the seed 3"
        if "," in self.seeds:
            return whole_numbers("--seeds", self.seeds, 0, advice)
        return list(range(whole_numbers("--seeds", self.seeds, 1, advice)[0]))

    @property
    def skews(self) -> list[float | None]:
        """The alphas of the Dirichlet distributions, each once; None stands for rows dealt out evenly.

        Raises:
            SettingsError: neither iid nor a number above 0.
        """

        def read(text: str) -> float | None:
            return None if text == "iid" else positive(text)

        return values("--skew", self.skew, read, "iid, or numbers above 0", "write for example iid,0.1")

    @property
    def cluster(self) -> Cluster | None:
        """Compute times and links, where any of their flags was typed; whether it fits is not looked at.

        Raises:
            SettingsError: one of them cannot be meant.
        """
        given = (self.compute, self.bandwidth, self.latency, self.slow_worker)
        if given == (None,) * len(given):
            return None
        usual = Cluster()

        def read(part: str) -> tuple[int, float]:
            worker, _, factor = part.partition("=")
            return int(worker), float(factor)

        expected, advice = "workers and factors", "write for example 3=2.0,5=4"
        slow: list[tuple[int, float]] = []
        if self.slow_worker is not None:
            slow = values("--slow-worker", self.slow_worker, read, expected, advice)
        return Cluster(
            compute=usual.compute if self.compute is None else self.compute,
            slow=dict(slow),
            link=usual.link if self.bandwidth is None else self.bandwidth,
            latency=usual.latency if self.latency is None else self.latency,
        )

    def lr_of(self, algorithm: str) -> float:
        """The learning rate of an algorithm: the one named for it, the one for all, or its own.

        Raises:
            SettingsError: something else than such a list.
        """
        found: dict[str, float] = {}
        expected, advice = "numbers above 0", "write for example 0.1 or dpsgd=0.1,dadam=0.003"
        for part in split(self.lr or ""):
            name, _, rate = part.rpartition("=")
            if name and name not in self.algorithm_names:
                raise unknown_name("algorithm in --lr", name, self.algorithm_names)
            try:
                found[name] = positive(rate)
            except ValueError:
                raise out_of_range("--lr", part, expected, advice) from None
        if self.lr is not None and not found:
            raise out_of_range("--lr", self.lr, expected, advice)
        return found.get(algorithm, found.get("", algorithms.build(algorithm).lr))
