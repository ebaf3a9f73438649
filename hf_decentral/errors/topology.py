"""Errors about topologies that the workers at hand cannot form."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.errors.base import SettingsError, TopologyError, sentence


def wrong_workers(workers: object) -> TopologyError:
    """Fewer than one worker, or a number of workers that is no whole number."""
    return TopologyError(
        sentence(
            f"{workers!r} workers were given",
            "a topology has 1 worker or more",
            "give the number of processes of the run",
        )
    )


def wrong_hosts(hosts: Sequence[int], workers: int) -> TopologyError:
    """Hosts for another number of workers."""
    return TopologyError(
        sentence(
            f"hosts names {len(hosts)} workers: {hosts!r}",
            f"expected one host number for each of the {workers} workers",
            "give the host of each worker, such as [0, 0, 1, 1] for two hosts of two, or leave it out",
        )
    )


def nobody_left(workers: int) -> TopologyError:
    """Every worker was taken out of a topology."""
    return TopologyError(
        sentence(
            f"all {workers} workers were taken out",
            "at least one worker goes on",
            "name fewer workers in without(dead, topology)",
        )
    )


def not_an_expression(text: str, combinators: Sequence[str]) -> SettingsError:
    """A text in brackets that is no topology."""
    return SettingsError(
        sentence(
            f"topology {text!r} was given",
            f"a name, or {' or '.join(combinators)} around names and numbers",
            "write for example 'every(8, ring)' or 'then(complete, 500, aer)', in quotes on a command line",
        )
    )


def asked_inside(inner: str, outside: str) -> SettingsError:
    """A combinator around a topology whose rounds wait for the consensus distance."""
    return SettingsError(
        sentence(
            f"{outside}() was put around {inner}",
            "above() stands outside of all other combinators",
            f"write 'above(distance, {outside}(...))'",
        )
    )
