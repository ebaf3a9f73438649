"""A topology from a bare graph: Metropolis-Hastings weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor

from hf_decentral.errors import out_of_range
from hf_decentral.errors.topology import directed_graph, no_graph, not_connected
from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Topology

Edge = tuple[int, int]


def from_graph(graph: Any, workers: int | None = None, name: str | None = None) -> Topology:
    """Every round averages along the edges of an undirected graph, with Metropolis-Hastings weights.

    Args:
        graph: a networkx graph, whose nodes are the workers in their order, or by their numbers where those
            are 0 to ``W - 1``; or a symmetric adjacency matrix ``[W, W]``, a torch or numpy array or nested
            lists, in which everything but zero is an edge; or a list of pairs of workers (so that a 2 x 2
            adjacency matrix must be an array). Loops have no effect.
        workers: number of workers, ``W``; needed where a list of pairs does not end with the last worker.
        name: of the topology; left out, one that is made from the weights.

    Raises:
        TopologyError: the graph is directed or not connected, no such graph, or for other workers.
    """
    count, edges = _read(graph)
    if workers is not None and workers != count:
        if workers < count or not _is_pairs(graph):
            advice = "leave it out, or give another graph"
            raise out_of_range("workers", workers, f"{count}, the workers of the graph", advice)
        count = workers
    edges = {(min(i, j), max(i, j)) for i, j in edges if i != j}
    beside: list[list[int]] = [[] for _ in range(count)]
    for i, j in edges:
        beside[i].append(j)
        beside[j].append(i)
    part = reached(beside, 0)
    if len(part) < count:
        raise not_connected(sorted(part), sorted(set(range(count)) - part))
    round = metropolis(count, edges)
    return Topology.cycle(name or f"graph-{round.key}", [round])


def metropolis(workers: int, edges: Iterable[Edge]) -> Round:
    """Metropolis-Hastings weights: ``w_ij = 1 / (1 + max(d_i, d_j))`` on an edge, ``d`` the number of edges
    at a worker, which keeps the rest. Symmetric and doubly stochastic on any graph.

    Args:
        workers: number of workers.
        edges: each once, and none from a worker to itself.
    """
    beside: list[list[int]] = [[] for _ in range(workers)]
    for i, j in edges:
        beside[i].append(j)
        beside[j].append(i)
    degree = [len(others) for others in beside]
    rows: list[Row] = []
    for i, others in enumerate(beside):
        most = 1 / (1 + degree[i])
        row = {j: 1 / (1 + max(degree[i], degree[j])) for j in others}
        # Written so that a worker among others with no more edges has equal weights to the last bit.
        row[i] = most + sum(most - weight for weight in row.values())
        rows.append(tuple(sorted(row.items())))
    return Round(tuple(rows))


def reached(following: Sequence[Iterable[int]], start: int) -> set[int]:
    """The workers to which a way leads from ``start``, itself among them."""
    seen, todo = {start}, [start]
    while todo:
        new = set(following[todo.pop()]) - seen
        seen |= new
        todo += new
    return seen


def _read(graph: Any) -> tuple[int, set[Edge]]:
    """The number of workers and the edges, each in one or both directions."""
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        return _of_networkx(graph)
    try:
        if _is_pairs(graph):
            pairs = np.asarray(graph).astype(np.int64, casting="safe").tolist()
            if not pairs or min(chain(*pairs)) < 0:
                raise no_graph("pairs of workers, numbered from 0")
            return max(chain(*pairs)) + 1, {(i, j) for i, j in pairs}
        array = np.asarray(graph.detach().cpu() if isinstance(graph, Tensor) else graph)
        joined = array.astype(np.float64, casting="safe") != 0
    except (TypeError, ValueError) as error:
        raise no_graph(str(error)) from error
    if joined.ndim != 2 or joined.shape[0] != joined.shape[1] or not joined.size:
        raise no_graph(f"an array of shape {list(joined.shape)}")
    oneway = np.argwhere(joined & ~joined.T).tolist()
    if oneway:
        i, j = oneway[0]
        raise directed_graph(f"row {i} has worker {j} and row {j} has not worker {i}")
    return len(joined), {(i, j) for i, j in np.argwhere(joined).tolist()}


def _is_pairs(graph: Any) -> bool:
    if isinstance(graph, (list, tuple, set, frozenset)):
        return all(isinstance(edge, (list, tuple)) and len(edge) == 2 for edge in graph)
    return hasattr(graph, "shape") and len(graph.shape) == 2 and graph.shape[1] == 2 != graph.shape[0]


def _of_networkx(graph: Any) -> tuple[int, set[Edge]]:
    is_directed: Callable[[], bool] = getattr(graph, "is_directed", lambda: False)
    if is_directed():
        raise directed_graph("its edges have directions")
    nodes = list(graph.nodes)
    if not nodes:
        raise no_graph("a graph without nodes")
    numbered = set(nodes) == set(range(len(nodes)))
    worker = {node: node if numbered else k for k, node in enumerate(nodes)}
    return len(nodes), {(worker[edge[0]], worker[edge[1]]) for edge in graph.edges}
