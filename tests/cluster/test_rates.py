from __future__ import annotations

import pytest

from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors import SettingsError


@pytest.mark.parametrize(
    ("typed", "bits"),
    [("200mbit", 2e8), ("1gbit", 1e9), ("1.5gbit", 1.5e9), ("512kbit", 5.12e5), ("none", None)],
)
def test_a_rate_is_a_number_and_a_unit(typed, bits):
    assert bits_per_second(typed) == bits


@pytest.mark.parametrize(
    "typed",
    ["", "fast", "200", "200mb", "200 mbit", "-1mbit", "0mbit", "1e3mbit", "200mbit; ls", "None", "2Gbit"],
)
def test_what_is_no_rate_is_told_what_one_looks_like(typed):
    with pytest.raises(SettingsError, match="200mbit"):
        bits_per_second(typed)
