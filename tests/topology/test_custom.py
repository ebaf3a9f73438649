"""One's own matrix and one's own graph: what is taken, and what is told of each fault."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral import decentralize
from hf_decentral.errors import SettingsError, TopologyError
from hf_decentral.topology import Topology, build, custom, every, from_graph, rounds, spectrum, then, without
from hf_decentral.topology.spectrum import radius
from hf_decentral.transport import Memory

RING = build("ring", 6)(0).matrix()
PAIRS = [round.matrix() for round in build("base_graph", 4).rounds()]
SWAP = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
SPLIT = [[1.0, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 0.5]]
PUSHED = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.5, 0.5], [0.25, 0.0, 0.5]])


@pytest.mark.parametrize(
    "given",
    [RING, RING.numpy(), RING.tolist(), list(RING), torch.nn.Parameter(RING), [RING.numpy()]],
)
def test_a_matrix_in_any_form_is_the_topology(given: Any) -> None:
    assert custom(given).rounds() == build("ring", 6).rounds()


@pytest.mark.parametrize(
    "given", [PAIRS, torch.stack(PAIRS), [m.tolist() for m in PAIRS], np.stack([m.numpy() for m in PAIRS])]
)
def test_several_matrices_are_a_period(given: Any) -> None:
    topology = custom(given, name="mine")
    assert (topology.name, topology.period) == ("mine", 2)
    assert topology.rounds() == build("base_graph", 4).rounds()
    assert spectrum(topology).exact == 2


def test_without_a_name_the_weights_are_the_name() -> None:
    assert custom(RING).name == custom(RING.numpy()).name != custom(PAIRS).name
    assert custom(RING).name.startswith("custom-")
    assert from_graph([(0, 1), (1, 2)]).name != from_graph([(0, 1), (0, 2)]).name


def test_single_precision_is_scaled_and_double_is_left_alone() -> None:
    sums = custom(RING.float())(0).matrix().sum(1)
    torch.testing.assert_close(sums, torch.ones(6, dtype=torch.float64), rtol=0, atol=1e-15)
    assert custom(RING)(0).matrix().tolist() == RING.tolist()


def changed(*changes: tuple[int, int, float]) -> Any:
    matrix = RING.clone()
    for i, j, by in changes:
        matrix[i, j] += by
    return matrix


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (changed((2, 3, -0.1)), "Row 2 sums to 0.9."),
        (changed((4, 0, -0.2), (4, 4, 0.2)), "Row 4, column 0 has the weight -0.2."),
        (changed((1, 1, float("nan"))), "Row 1, column 1 has the weight nan."),
        (changed((1, 1, float("inf"))), "Row 1, column 1 has the weight inf."),
        (changed((3, 2, 0.1), (3, 3, -0.1)), "Column 2 sums to 1.1."),
        ([PAIRS[0], PAIRS[1] * 0.5], "Row 0 of round 1 sums to 0.5."),
        (RING[:5], "its shape is [5, 6]"),
        ([1.0, 2.0], "its shape is [2]"),
        ([], "its shape is [0]"),
        ([[1.0, 0.0], [1.0]], "no matrix"),
        ([["a", "b"], ["c", "d"]], "no matrix"),
        (RING.to(torch.complex64), "no matrix"),
        ([RING, PAIRS[0]], "no matrix"),
        (torch.eye(3), "Nothing leads from worker 0 to workers 1, 2."),
        (
            torch.block_diag(RING, RING),
            "from workers 0, 1, 2, 3, ... (6 in all) to workers 6, 7, 8, 9, ... (6",
        ),
        ([PAIRS[0], PAIRS[0]], "Nothing leads from workers 0, 1 to workers 2, 3."),
        (SWAP, "never come nearer to the mean"),
        ([[0.0, 0.5, 0.0, 0.5], [0.5, 0.0, 0.5, 0.0]] * 2, "never come nearer to the mean"),
    ],
)
def test_each_fault_has_its_sentence(given: Any, told: str) -> None:
    with pytest.raises(TopologyError) as refused:
        custom(given)
    assert told in str(refused.value)


def test_for_push_sum_columns_count() -> None:
    topology = custom(PUSHED, push=True)
    assert topology.push and topology(0).matrix().tolist() == PUSHED.tolist()
    for around in (
        every(2, topology),
        rounds(3, topology),
        then(topology, 2, topology),
        without({1}, topology),
    ):
        assert around.push
        for round in around.rounds(6):
            torch.testing.assert_close(round.matrix().sum(0), torch.ones(3).double(), rtol=0, atol=1e-12)
    with pytest.raises(TopologyError, match="Column 0 sums to 0.9"):
        custom(PUSHED - torch.tensor([[0.1, 0, 0], [0, 0, 0], [0, 0, 0]]), push=True)
    with pytest.raises(TopologyError, match="Nothing leads from worker 0 to workers 1, 2"):
        custom(SPLIT, push=True)
    with pytest.raises(TopologyError, match="Nothing leads from workers 1, 2 to worker 0"):
        custom([[0.5, 0.0, 0.0], [0.25, 0.5, 0.5], [0.25, 0.5, 0.5]], push=True)
    with pytest.raises(TopologyError, match="Row 1 sums to 1.25"):
        custom(PUSHED)


def test_a_plain_average_refuses_weights_for_push_sum() -> None:
    p = torch.nn.Parameter(torch.zeros(3, 2))
    with pytest.raises(SettingsError, match="weights for push-sum"):
        decentralize(torch.optim.SGD([p], lr=0.1), custom(PUSHED, push=True), transport=Memory(3))


def test_it_averages() -> None:
    p = torch.nn.Parameter(torch.zeros(6, 3, dtype=torch.float64))
    optimizer = decentralize(torch.optim.SGD([p], lr=0.1), custom(RING), order="atc", transport=Memory(6))
    begin = torch.arange(18.0, dtype=torch.float64).reshape(6, 3).square()
    with torch.no_grad():
        p.copy_(begin)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.testing.assert_close(p.detach(), RING @ begin)


# Graphs


class Graph(SimpleNamespace):
    """What networkx gives: nodes, edges and whether they have a direction."""

    def is_directed(self) -> bool:
        return bool(self.directed)


def graph(nodes: list[Any], edges: list[tuple[Any, ...]], directed: bool = False) -> Graph:
    return Graph(nodes=nodes, edges=edges, directed=directed)


@pytest.mark.parametrize(
    "given",
    [
        [(0, 1), (0, 2), (0, 3), (3, 0), (2, 2)],
        np.array([[0, 1], [0, 2], [3, 0]]),
        torch.tensor([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 9, 0], [1, 0, 0, 0]]),
        [[0, 2.5, 1, 1], [2.5, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]],
        graph([3, 2, 1, 0], [(3, 0), (0, 1), (2, 0)]),
        graph(["hub", "a", "b", "c"], [("hub", "a", 0), ("b", "hub", 0), ("c", "hub", 1)]),
    ],
)
def test_a_graph_in_any_form_gets_metropolis_weights(given: Any) -> None:
    assert from_graph(given).rounds() == build("star", 4).rounds()


def test_a_real_networkx_graph() -> None:
    networkx = pytest.importorskip("networkx")
    found = from_graph(networkx.cycle_graph(8))
    assert found.rounds() == build("ring", 8).rounds()
    assert from_graph(networkx.petersen_graph()).workers == 10
    with pytest.raises(TopologyError, match="is directed"):
        from_graph(networkx.DiGraph([(0, 1), (1, 0)]))
    assert custom(networkx.to_numpy_array(networkx.complete_graph(4)) / 4 + np.eye(4) / 4).workers == 4


def test_networkx_is_not_imported() -> None:
    """It is no dependency of the package."""
    assert "networkx" not in (sys.modules["hf_decentral.topology.graph"].__dict__)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.data())
def test_any_connected_graph_mixes_and_keeps_the_mean(workers: int, data: st.DataObject) -> None:
    tree = [(data.draw(st.integers(0, i - 1)), i) for i in range(1, workers)]
    more = data.draw(st.lists(st.tuples(st.integers(0, workers - 1), st.integers(0, workers - 1))))
    topology = from_graph(tree + more)
    matrix = topology(0).matrix()
    assert torch.equal(matrix, matrix.T) and bool((matrix >= 0).all())
    torch.testing.assert_close(matrix.sum(1), torch.ones(workers).double(), rtol=0, atol=1e-12)
    assert radius(matrix - 1 / workers) < 1 - 1e-4


def test_a_complete_graph_is_one_mean() -> None:
    assert from_graph(np.ones((7, 7))).rounds() == build("complete", 7).rounds()


@pytest.mark.parametrize(
    ("given", "workers", "kind", "told"),
    [
        ([(0, 1), (2, 3)], None, TopologyError, "Nothing leads from workers 0, 1 to workers 2, 3."),
        ([(0, 1), (1, 2)], 4, TopologyError, "from workers 0, 1, 2 to worker 3"),
        ([(0, 1), (1, 4)], 3, SettingsError, "workers=3"),
        (np.eye(3), None, TopologyError, "join the two parts, for example worker 0 and worker 1"),
        (np.ones((3, 3)), 4, SettingsError, "workers=4"),
        (
            np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]]),
            None,
            TopologyError,
            "row 0 has worker 1 and row 1 has not",
        ),
        (graph([0, 1], [(0, 1)], directed=True), None, TopologyError, "to_undirected"),
        (graph([], []), None, TopologyError, "a graph without nodes"),
        ([], None, TopologyError, "pairs of workers"),
        ([(0, -1)], None, TopologyError, "pairs of workers"),
        ([(0, 1.5)], None, TopologyError, "no graph could be read"),
        ("ring", None, TopologyError, "no graph could be read"),
        (np.ones((2, 3)), None, TopologyError, "an array of shape [2, 3]"),
        (None, None, TopologyError, "no graph could be read"),
    ],
)
def test_what_is_no_connected_graph(
    given: Any, workers: int | None, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind) as refused:
        from_graph(given, workers)
    assert told.lower() in str(refused.value).lower()


def test_they_stand_inside_combinators() -> None:
    topology = every(2, custom(RING, name="mine"))
    assert isinstance(topology, Topology) and topology.name == "every(2, mine)"
