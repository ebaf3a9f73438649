"""The rates of the hosts' links, as they are typed."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors.bench import not_a_host_rate

WIRE_OVER_PAYLOAD = 1514 / 1448
"""An Ethernet frame of 1514 bytes carries 1448 bytes of TCP payload (with timestamps, as Linux sends it)."""


def rates_of_hosts(link: str, rate_of: Sequence[str], hosts: int) -> list[str]:
    """The rate of every host.

    Args:
        link: the rate of all hosts that are not named.
        rate_of: ``HOST=RATE`` for the others.
        hosts: number of hosts.

    Raises:
        SettingsError: one of them is no rate, or names no host, or the links are not shaped at all.
    """
    shaped = bits_per_second(link) is not None
    rates = [link] * hosts
    for given in rate_of:
        host, _, rate = given.partition("=")
        if not shaped or not host.isdecimal() or int(host) >= hosts or rate in ("", "none"):
            raise not_a_host_rate(given, hosts)
        bits_per_second(rate)
        rates[int(host)] = rate
    return rates
