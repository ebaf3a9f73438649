"""Errors about a run that is to choose its topology by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hf_decentral.errors.base import SettingsError, sentence


def nothing_to_choose(cluster: str, topology: str) -> SettingsError:
    """A description of the cluster for a run whose topology is fixed."""
    return SettingsError(
        sentence(
            f"cluster={cluster!r} was given with topology={topology!r}",
            "what is known of the cluster serves the choice of a topology",
            "give topology='auto', or leave the cluster out",
        )
    )


def other_cluster(path: str, described: Sequence[int], found: Sequence[int]) -> SettingsError:
    """A description of other workers or hosts than those of this run.

    Args:
        path: the file.
        described: the host of each worker in it.
        found: the host of each worker in this run.
    """
    return SettingsError(
        sentence(
            f"{path} describes {_workers(described)}, and this run has {_workers(found)}",
            "expected the workers and hosts of this run",
            "calibrate with this launch, or leave the cluster out: the first steps then show it (where the "
            "hosts were found wrongly, give them)",
        )
    )


def nothing_fits(averaging: str, order: str, delay: int | None, reason: str) -> SettingsError:
    """Settings that no topology goes with, among those of which one would be chosen."""
    travels = "" if delay is None else f", delay={delay}"
    return SettingsError(
        sentence(
            f"topology='auto' was given with averaging={averaging!r}, order={order!r}{travels}",
            f"expected settings that one of the topologies to choose from goes with ({reason})",
            "leave one of them out, or name a topology",
        )
    )


def nothing_timed(workers: Sequence[int]) -> SettingsError:
    """First steps of which none counts, since the model was evaluated in each of them."""
    whose = f"worker{'s' if len(workers) > 1 else ''} {', '.join(map(str, workers))}"
    return SettingsError(
        sentence(
            f"no step of {whose} could be timed",
            "a step counts in which the model is not evaluated",
            "evaluate less often in the first steps",
        )
    )


def _workers(hosts: Sequence[int]) -> str:
    together = [str(len(list(group))) for _, group in groupby(hosts)]
    many = f" ({' + '.join(together)})" if len(together) > 1 else ""
    total, count = len(hosts), len(set(hosts))
    return f"{total} worker{'s' if total > 1 else ''} on {count} host{'s' if count > 1 else ''}{many}"
