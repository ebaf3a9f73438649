"""Averaging methods by name, with numbers behind it."""

from __future__ import annotations

import pytest

from hf_decentral.averaging import build
from hf_decentral.errors import SettingsError


@pytest.mark.parametrize("text", ["top_k", "top_k(0.5)", "top_k(0.5, 0.2)", "top_k( 1 )", "low_rank(2)"])
def test_numbers_may_stand_behind_a_name(text: str) -> None:
    assert build(text).repeats


@pytest.mark.parametrize(
    ("text", "told"),
    [
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
