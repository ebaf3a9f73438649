from __future__ import annotations

import pytest

from hf_decentral.bench.rates import bits_per_second, rates_of_hosts
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


def test_some_hosts_have_another_rate():
    assert rates_of_hosts("1gbit", ["2=50mbit"], 3) == ["1gbit", "1gbit", "50mbit"]


@pytest.mark.parametrize("given", ["3=50mbit", "x=50mbit", "50mbit", "1=", "1=none", "-1=50mbit"])
def test_a_rate_of_no_host(given):
    with pytest.raises(SettingsError, match="HOST=RATE"):
        rates_of_hosts("1gbit", [given], 3)


def test_loopback_has_no_slow_host():
    with pytest.raises(SettingsError, match="--link"):
        rates_of_hosts("none", ["1=50mbit"], 3)
