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


def cannot_serve(name: str, workers: int, needs: str, nearest: Sequence[int]) -> TopologyError:
    """A topology for some numbers of workers only; ``nearest`` are those around the given one."""
    return TopologyError(
        sentence(
            f"topology {name!r} was asked for with {workers} workers",
            f"it needs {needs}; nearest: {' and '.join(map(str, nearest))}",
            "run that many, or take base_graph, random_matching or another that serves any number",
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


def wrong_numbers(text: str, name: str, most: int) -> SettingsError:
    """Something else in parentheses behind the name of a topology than the whole numbers that it takes."""
    takes = f"whole numbers of 0 or more, at most {most}" if most else "no numbers"
    advice = f"write {name!r} alone" + (f", or for example '{name}(2)'" if most else "")
    return SettingsError(sentence(f"topology {text!r} was given", f"{name!r} takes {takes}", advice))


def asked_inside(inner: str, outside: str) -> SettingsError:
    """A combinator around a topology whose rounds wait for the consensus distance."""
    return SettingsError(
        sentence(
            f"{outside}() was put around {inner}",
            "above() stands outside of all other combinators",
            f"write 'above(distance, {outside}(...))'",
        )
    )


def no_matrix(cause: str) -> TopologyError:
    """Weights that are no square matrix of numbers."""
    return TopologyError(
        sentence(
            f"the weights are no matrix ({cause})",
            "expected one of [workers, workers], or several of one size, one for each round",
            "row i holds the weights with which worker i sums what it hears, its own among them",
        )
    )


def bad_weight(row: int, column: int, where: str, weight: float) -> TopologyError:
    """A weight that is negative or no number."""
    return TopologyError(
        sentence(
            f"row {row}, column {column}{where} has the weight {weight:g}",
            "weights are 0 or more",
            f"make what worker {row} takes of worker {column} 0 or more, and its row sum to one",
        )
    )


def wrong_row(row: int, where: str, total: float) -> TopologyError:
    """A worker whose weights do not sum to one."""
    return TopologyError(
        sentence(
            f"row {row}{where} sums to {total:.9g}",
            "rows sum to one: a worker takes a mean of what it hears",
            "divide the row by its sum, or give the bare graph to from_graph(), which finds weights",
        )
    )


def wrong_column(column: int, where: str, total: float) -> TopologyError:
    """A worker that has more or less influence than the others."""
    return TopologyError(
        sentence(
            f"column {column}{where} sums to {total:.9g}",
            "columns sum to one: what the others take of a worker, and it keeps, is all that it has",
            "make the matrix symmetric, or give the bare graph to from_graph(); "
            "push=True is for push-sum, where only columns must sum to one",
        )
    )


def not_connected(one: Sequence[int], other: Sequence[int]) -> TopologyError:
    """A graph in several parts, or one on which numbers go in one direction only."""
    return TopologyError(
        sentence(
            f"nothing leads from {_told(one)} to {_told(other)}",
            "expected a way from every worker to every other, over others and within a period",
            f"join the two parts, for example worker {one[0]} and worker {other[0]}",
        )
    )


def _told(workers: Sequence[int], most: int = 4) -> str:
    shown = ", ".join(map(str, workers[:most]))
    more = f", ... ({len(workers)} in all)" if len(workers) > most else ""
    return f"worker{'s' if len(workers) > 1 else ''} {shown}{more}"


def never_mixes() -> TopologyError:
    """Connected, but numbers come back as they went, as on a ring without weights of one's own."""
    return TopologyError(
        sentence(
            "the rounds pass numbers around and never come nearer to the mean",
            "differences shrink over a period (its second eigenvalue is below 1)",
            "give the workers a weight of their own: (I + M) / 2 will do",
        )
    )


def directed_graph(cause: str) -> TopologyError:
    """A graph with edges in one direction, for which Metropolis weights are not defined."""
    return TopologyError(
        sentence(
            f"the graph is directed: {cause}",
            "Metropolis weights are for undirected graphs",
            "give graph.to_undirected(), or your own weights to custom()",
        )
    )


def no_graph(cause: str) -> TopologyError:
    """Something that is no graph."""
    return TopologyError(
        sentence(
            f"no graph could be read ({cause})",
            "expected a networkx graph, a square adjacency matrix, or a list of pairs of workers",
            "write for example from_graph([(0, 1), (1, 2), (2, 0)])",
        )
    )


def must_push(averaging: str, topology: str) -> SettingsError:
    """Weights for push-sum under a method that does not divide by the weight that it received."""
    return SettingsError(
        sentence(
            f"topology {topology!r} has weights for push-sum, and averaging is {averaging!r}",
            "other methods need rows that sum to one",
            "choose an averaging method with push-sum, or weights that are made without push=True",
        )
    )
