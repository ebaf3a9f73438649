"""Topologies written as text."""

from __future__ import annotations

import pytest

from hf_decentral import topology
from hf_decentral.errors import SettingsError
from hf_decentral.integrations.settings import resolve


@pytest.mark.parametrize(
    "text",
    [
        "every(8, ring)",
        "then(complete, 5, aer)",
        "then(ring, 2, every(3, complete))",
        "rounds(2, aer)",
        "above(0.25, every(2, ring))",
        "base_graph(2)",
        "every(8, base_graph(2))",
        "random_matching(7)",
        "then(random_ring(3), 5, d_equistatic(1, 2))",
        "u_equistatic(0, 3)",
        "lazy(every(2, ring))",
    ],
)
def test_what_is_read_is_what_a_topology_is_called(text: str) -> None:
    made = topology.build(text, 6, [0, 0, 0, 1, 1, 1])
    assert made.name == text
    assert topology.build(text.replace(" ", ""), 6, [0, 0, 0, 1, 1, 1]).name == text


def test_rounds_are_those_of_the_combinators() -> None:
    ring, complete = topology.build("ring", 5), topology.build("complete", 5)
    assert [topology.build("every(2, ring)", 5)(t) for t in range(4)] == [
        topology.every(2, ring)(t) for t in range(4)
    ]
    made = topology.build("then(complete, 2, ring)", 5)
    assert [made(t) for t in range(4)] == [complete(0), complete(1), ring(0), ring(1)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("every(8)", "write for example"),
        ("every(ring, 8)", "write for example"),
        ("every(True, ring)", "write for example"),
        ("every(8, ring", "write for example"),
        ("every(8, ring, n=1)", "write for example"),
        ("(lambda: ring)()", "write for example"),
        ("every(8, ring)\0", "write for example"),
        ("evry(8, ring)", "did you mean 'every'"),
        ("every(8, rng)", "did you mean 'ring'"),
        ("every(0, ring)", "1 or more"),
        ("lazy(2, ring)", "write for example"),
        ("every(2.5, ring)", "write for example"),
        ("above(True, ring)", "write for example"),
        ("above(1e999, ring)", "0 or more"),
        ("every(2, above(1, ring))", "outside of all other"),
        ("base_graph(2.5)", "whole numbers of 0 or more, at most 1"),
        ("base_graph(1, 2)", "at most 1"),
        ("base_graph(True)", "whole numbers"),
        ("base_graph(k=2)", "write for example"),
        ("base_graph()", "whole numbers"),
        ("random_matching(-1)", "whole numbers"),
        ("every(2, ring(3))", "'ring' takes no numbers"),
        ("base_grph(2)", "did you mean 'base_graph'"),
        ("base_graph(0)", "k=0"),
    ],
)
def test_what_cannot_be_meant(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        topology.build(text, 4)
    assert told in str(refused.value).lower()


def test_a_number_that_is_the_default_is_not_part_of_the_name() -> None:
    assert topology.build("base_graph(1)", 6) == topology.build("base_graph", 6)
    assert topology.build("d_equistatic(0, 0)", 6).name == "d_equistatic"
    assert topology.build("d_equistatic(2, 0)", 6).name == "d_equistatic(2)"


def test_a_setting_may_be_a_topology_with_numbers() -> None:
    assert resolve({}, {"DECENTRAL_TOPOLOGY": "Base_Graph(2)"}).topology == "base_graph(2)"
    assert (
        resolve({"topology": "every(4, random_matching(7))"}, {}).topology == "every(4, random_matching(7))"
    )


def test_a_setting_may_be_a_schedule() -> None:
    assert (
        resolve({}, {"DECENTRAL_TOPOLOGY": "Then(complete,100,AER)"}).topology == "then(complete, 100, aer)"
    )
    with pytest.raises(SettingsError, match="combinator"):
        resolve({"topology": "than(complete, 100, aer)"}, {})
