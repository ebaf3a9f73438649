"""Averaging methods by name, with numbers behind it."""

from __future__ import annotations

import pytest

from hf_decentral.averaging import build
from hf_decentral.errors import SettingsError


@pytest.mark.parametrize("text", ["top_k", "top_k(0.5)", "top_k(0.5, 0.2)", "top_k( 1 )", "low_rank(2)"])
def test_numbers_may_stand_behind_a_name(text: str) -> None:
    assert build(text).repeats


@pytest.mark.parametrize(
    "text",
    ["choco", "choco(int8)", "choco(top_k(0.05), 0.1)", "choco( low_rank(2) , .5)", "choco(random_k, 1)"],
)
def test_a_codec_may_stand_in_choco(text: str) -> None:
    assert build(text).repeats


@pytest.mark.parametrize("text", ["deepsqueeze", "deepsqueeze(bf16)", "deepsqueeze(int4, 0.3)"])
def test_a_codec_may_stand_in_deepsqueeze(text: str) -> None:
    assert not build(text).repeats


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("choco(0.5)", "a codec and at most 1 number in parentheses"),
        ("choco(int8, int4)", "Expected numbers"),
        ("choco(int8, 0.5, 1)", "a codec and at most 1 number"),
        ("choco(int8, 0)", "gamma"),
        ("choco(int8, True)", "a codec and at most 1 number"),
        ("choco(int7)", "Did you mean 'int8'"),
        ("choco(int8(3))", "nothing in parentheses"),
        ("choco(top_k(0))", "fraction=0"),
        ("choco(top_k(int8))", "Expected numbers"),
        ("choco(low_rank(1.5))", "at most 1"),
        ("choco(codec=int8)", "a codec and at most 1"),
        ("choco(deepsqueeze(int8))", "two methods would each remember"),
        ("deepsqueeze(choco)", "two methods would each remember"),
        ("choco(plain)", "Unknown codec 'plain'"),
        ("top_k(int8)", "Expected numbers"),
        ("push_sum(int8)", "weights of push-sum"),
        ("int8(bf16)", "Expected numbers"),
        ("int8(0.1)(2)", "nothing in parentheses"),
        ("top_k(0)", "fraction"),
        ("top_k(1.5)", "fraction"),
        ("top_k(0.1, 2)", "gamma"),
        ("low_rank(0)", "rank"),
        ("low_rank(1.5)", "low_rank"),
        ("low_rank(1e999)", "low_rank"),
        ("int8(3)", "nothing in parentheses"),
        ("top_k(0.1, 0.1, 0.1)", "at most 2"),
        ("top_k(", "at most 2"),
        ("top_k(x)", "at most 2"),
        ("top_q(0.1)", "Did you mean 'top_k'"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as found:
        build(text)
    assert told in str(found.value)
