"""What a benchmark is told: one dataclass, read from the command line, checked before a worker starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

from transformers import HfArgumentParser

from hf_decentral.bench.namespaces import MOST_HOSTS
from hf_decentral.bench.rates import rates_of_hosts
from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.bench import needs_emulation
from hf_decentral.topology.expression import split


def told(text: str) -> dict[str, str]:
    """The help of a field."""
    return {"help": text}


@dataclass
class Workload:
    """Who computes what, and where. A flag may be written with - or with _."""

    hosts: int | None = field(
        default=None,
        metadata=told("number of hosts; 4 if left out. Under a launcher (RANK is set): leave it out"),
    )
    workers_per_host: int | None = field(default=None, metadata=told("workers of each host; 1 if left out"))
    link: str = field(
        default="none",
        metadata=told(
            "rate of each host's link in both directions, such as 200mbit or 1gbit: every host is then a "
            "network namespace (needs root and iproute2). none: plain processes on loopback. Under a "
            "launcher nothing is shaped; there it names the network's own rate, for ratio_to_limit"
        ),
    )
    rate_of: list[str] = field(
        default_factory=list, metadata=told("other rates for some hosts, as 2=50mbit 3=100mbit")
    )
    emulate_ms: float = field(
        default=0.0,
        metadata=told(
            "emulate an accelerator: layers that sleep this long in a step, a third of it forward, the rest "
            "backward. Else --model computes; on few cores it competes with the network for them"
        ),
    )
    emulate_mb: float = field(
        default=20.0, metadata=told("megabytes (1e6 bytes) of float32 parameters of that model")
    )
    model: str = field(
        default="gpt2-tiny",
        metadata=told(
            "gpt2-nano, gpt2-tiny, gpt2-small, gpt2-medium, gpt2-large, gpt2-xl or resnet-50; random data"
        ),
    )
    batch_size: int = field(default=4, metadata=told("rows of a worker's batch"))
    block_size: int = field(default=64, metadata=told("tokens of a row, for gpt2"))
    jitter: float = field(
        default=0.0,
        metadata=told("chance that a worker is slow in a step, from 0 to 1; emulated accelerator only"),
    )
    slowdown: float = field(default=1.3, metadata=told("how many times longer a slow step computes"))
    slow_worker: int | None = field(
        default=None,
        metadata=told(
            "only this worker is ever slow: at random steps with --jitter, in every step without it"
        ),
    )
    seed: int = field(default=0, metadata=told("seed of weights, data and slow steps"))

    def check(self) -> None:
        """See that all of it can be meant, as far as that is known without workers.

        Raises:
            SettingsError: something that cannot.
        """
        least = {"hosts": 1, "workers_per_host": 1, "batch_size": 1, "block_size": 2, "slow_worker": 0}
        self.at_least(least)
        if self.hosts is not None and self.hosts > MOST_HOSTS:
            raise out_of_range("--hosts", self.hosts, f"at most {MOST_HOSTS}", "lower it")
        for name, low, high in (
            ("emulate_ms", 0.0, 1e6),
            ("emulate_mb", 1e-3, 1e6),
            ("jitter", 0.0, 1.0),
            ("slowdown", 1.0, 100.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise out_of_range(
                    f"--{name}", value, f"a number from {low:g} to {high:g}", "choose one of those"
                )
        for flag, given in (("--jitter", self.jitter > 0), ("--slow_worker", self.slow_worker is not None)):
            if given and not self.emulate_ms:
                raise needs_emulation(flag)
        bits_per_second(self.link)

    def at_least(self, whole: Mapping[str, int]) -> None:
        """Refuse numbers below the least that each may be.

        Raises:
            SettingsError: one of them.
        """
        for name, least in whole.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise out_of_range(f"--{name}", value, f"a whole number, {least} or more", "raise it")

    def rates(self, hosts: int) -> list[str]:
        """The rate of every host; see :func:`rates_of_hosts`."""
        return rates_of_hosts(self.link, self.rate_of, hosts)


@dataclass
class Settings(Workload):
    """All flags, as they were typed."""

    variants: list[str] = field(
        default_factory=lambda: ["none", "ddp", "ddp_tuned", "aer", "complete"],
        metadata=told(
            "list with commas: none (no communication; always measured), ddp (default bucket), ddp:4mb, "
            "ddp_tuned (the best of some buckets, found first), ddp_fp16, ddp_bf16, ddp_powersgd, "
            "post_local_sgd, decent_dp:TOPOLOGY, and any topology of this package, with +AVERAGING, "
            "+early or +whole behind it if wanted: aer,'every(8, ring)',aer+int4 (docs/benchmark.md)"
        ),
    )
    blocks: int = field(default=9, metadata=told("blocks of each variant; they alternate"))
    steps: int = field(
        default=8,
        metadata=told("counted steps of a block; best a multiple of the period of what is compared"),
    )
    warmup: int = field(default=2, metadata=told("steps before them in each block that are not counted"))
    apart: bool = field(
        default=False, metadata=told("for our variants, as if every worker had a host of its own")
    )
    memory: bool = field(
        default=False, metadata=told("measure memory and not time: SGD on --memory_mb of parameters")
    )
    memory_mb: int = field(default=256, metadata=told("MiB of parameters in that measurement"))
    json: str | None = field(default=None, metadata=told("write the result there"))
    plot: str | None = field(default=None, metadata=told("draw the result there, as PNG (needs matplotlib)"))
    profile: str | None = field(
        default=None,
        metadata=told("folder for a Chrome trace of one more block of each variant, of worker 0"),
    )

    def check(self) -> None:
        """See that all of it can be meant, as far as that is known without workers.

        Raises:
            SettingsError: something that cannot.
        """
        super().check()
        self.at_least({"blocks": 1, "steps": 1, "warmup": 0, "memory_mb": 1})

    @property
    def names(self) -> list[str]:
        """The variants that are asked for, each once, the unit of compute first."""
        asked = [name for given in self.variants for name in split(given)]
        return list(dict.fromkeys(["none", *("none" if name == "local" else name for name in asked)]))


T = TypeVar("T", bound=Workload)


def read(kind: type[T], words: Sequence[str], prog: str, description: str) -> T:
    """The settings of a command line, checked.

    Args:
        kind: their dataclass.
        words: the command line.
        prog: the command.
        description: for its ``--help``.

    Raises:
        SettingsError: something that cannot be meant.
    """
    parser = HfArgumentParser(kind, prog=prog, description=description)  # type: ignore[arg-type]
    settings, unknown = parser.parse_args_into_dataclasses(args=list(words), return_remaining_strings=True)
    if unknown:
        raise unknown_name("flag", unknown[0], [f"--{each.name}" for each in fields(kind)])
    found: T = settings
    found.check()
    return found


def parse(words: Sequence[str], description: str) -> Settings:
    """The settings of ``hf-decentral bench``; see :func:`read`."""
    return read(Settings, words, "hf-decentral bench", description)
