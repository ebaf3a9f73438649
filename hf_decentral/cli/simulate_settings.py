"""What ``hf-decentral simulate`` is told, as values."""

from __future__ import annotations

from dataclasses import dataclass

from hf_decentral import algorithms, topology
from hf_decentral import averaging as methods
from hf_decentral.cli.simulate_flags import Flags
from hf_decentral.cli.simulate_lists import names, of_workers, positive, values, whole_numbers
from hf_decentral.cluster.laws import Cluster
from hf_decentral.errors import SettingsError, TopologyError, out_of_range, unknown_name
from hf_decentral.optim.plan import Order
from hf_decentral.topology.expression import split


@dataclass(frozen=True)
class Settings(Flags):
    """The flags; a property gives what is meant by one."""

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
        _ = self.cluster, self.leaving, self.coming, self.seed_numbers, self.skews
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
        return Cluster(
            compute=usual.compute if self.compute is None else self.compute,
            slow=of_workers("--slow-worker", self.slow_worker, "3=2,5=1.5"),
            link=usual.link if self.bandwidth is None else self.bandwidth,
            latency=usual.latency if self.latency is None else self.latency,
        )

    @property
    def leaving(self) -> dict[int, float]:
        """Which workers leave, and when.

        Raises:
            SettingsError: something else than a list of workers and times.
        """
        return of_workers("--deaths", self.deaths, "3=100")

    @property
    def coming(self) -> dict[int, float]:
        """Which workers come, and when.

        Raises:
            SettingsError: something else than a list of workers and times.
        """
        return of_workers("--joins", self.joins, "3=200")

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
