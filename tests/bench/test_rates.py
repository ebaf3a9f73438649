from __future__ import annotations

import pytest

from hf_decentral.bench.rates import rates_of_hosts
from hf_decentral.errors import SettingsError


def test_some_hosts_have_another_rate():
    assert rates_of_hosts("1gbit", ["2=50mbit"], 3) == ["1gbit", "1gbit", "50mbit"]


@pytest.mark.parametrize("given", ["3=50mbit", "x=50mbit", "50mbit", "1=", "1=none", "-1=50mbit"])
def test_a_rate_of_no_host(given):
    with pytest.raises(SettingsError, match="HOST=RATE"):
        rates_of_hosts("1gbit", [given], 3)


def test_loopback_has_no_slow_host():
    with pytest.raises(SettingsError, match="--link"):
        rates_of_hosts("none", ["1=50mbit"], 3)
