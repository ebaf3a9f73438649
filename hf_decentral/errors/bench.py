"""Errors that the benchmark meets."""

from __future__ import annotations

from hf_decentral.errors.base import LaunchError, SettingsError, sentence


def not_a_host_rate(given: str, hosts: int) -> SettingsError:
    """The rate of one host, not written as such."""
    return SettingsError(
        sentence(
            f"--rate_of {given!r} was given",
            f"expected HOST=RATE with a host from 0 to {hosts - 1}, such as 2=50mbit, and a --link that is "
            "no none",
            "mend it or leave it out; all hosts then have the rate of --link",
        )
    )


def needs_root() -> LaunchError:
    """Network namespaces are made by root alone."""
    return LaunchError(
        sentence(
            "shaped links need root, and this process is not root",
            "every host is a network namespace of its own, which only root can make",
            "run it as root (sudo), or with --link none on loopback, which needs no rights",
        )
    )


def no_iproute2(tool: str) -> LaunchError:
    """``ip`` or ``tc`` is not installed."""
    return LaunchError(
        sentence(
            f"the command {tool!r} was not found",
            "hosts and their links are made with ip and tc, of the package iproute2",
            "install iproute2, or run with --link none on loopback",
        )
    )


def namespace_failed(command: str, cause: str) -> LaunchError:
    """The kernel refused to make a namespace, a link or its shape."""
    return LaunchError(
        sentence(
            f"`{command}` failed ({cause})",
            "this kernel and its rights must allow network namespaces, bridges, veth pairs and tc tbf",
            "in a container allow NET_ADMIN and SYS_ADMIN, or run with --link none on loopback",
        )
    )


def too_little_memory(workers: int, needed_bytes: float, free_bytes: float) -> LaunchError:
    """More workers than memory."""
    return LaunchError(
        sentence(
            f"{workers} workers need about {needed_bytes / 1e9:.1f} GB of memory, "
            f"and {free_bytes / 1e9:.1f} GB are free",
            "expected memory for a process, a model, its gradients and Adam's moments per worker",
            "start fewer workers, take a smaller --model or --emulate_mb, or end what else fills the memory",
        )
    )


def worker_failed(rank: int, code: int) -> LaunchError:
    """A worker of the benchmark ended with an error of its own."""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return LaunchError(
        sentence(
            f"worker {rank} {how}",
            "all workers end with 0; what this one said stands above, and the others were ended",
            "mend what it says, or run `hf-decentral doctor`, which examines this machine",
        )
    )


def other_world(hosts: int, workers_per_host: int, world: int) -> LaunchError:
    """The launcher started another number of workers than the flags say."""
    return LaunchError(
        sentence(
            f"--hosts {hosts} --workers_per_host {workers_per_host} were given to a run of {world} workers",
            "where a launcher has started the workers (RANK is set), it says how many there are",
            "leave both out under torchrun or accelerate launch, or start the benchmark without a launcher",
        )
    )


def needs_emulation(flag: str) -> SettingsError:
    """A flag that only the emulated accelerator knows."""
    return SettingsError(
        sentence(
            f"{flag} was given without --emulate_ms",
            "only the emulated accelerator can compute more slowly on purpose",
            f"add --emulate_ms 100 or another time, or leave {flag} out",
        )
    )


def bad_argument(variant: str, expected: str) -> SettingsError:
    """What stands behind the colon of a variant cannot be meant."""
    return SettingsError(
        sentence(f"variant {variant!r} was given", f"expected {expected}", "mend it or leave the colon out")
    )


def no_decent_dp() -> LaunchError:
    """The authors' package is not installed."""
    return LaunchError(
        sentence(
            "decent_dp is not installed",
            "the variants decent_dp:TOPOLOGY measure the package of the paper's authors",
            "install it with pip install 'hf-decentral[rivals]', or leave them out; the others are measured",
        )
    )


def rival_failed(variant: str, error: BaseException) -> LaunchError:
    """A package of others cannot train with these workers and hosts."""
    return LaunchError(
        sentence(
            f"{variant} cannot train here ({type(error).__name__}: {error})",
            "it is the code of others, and not all of it takes every number of workers and hosts",
            "choose other hosts and workers, or leave it out; the other variants are measured",
        )
    )
