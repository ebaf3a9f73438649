"""Which workers share a host, where somebody says it by hand.

Left alone, the optimizer finds it by itself, from the launcher's number of the node and the names of the
machines (``hf_decentral.transport.find_hosts``).
"""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.errors import out_of_range

_EXPECTED = "the number of workers of each host, as in '4,4,2'"


def parse(given: str | int | Sequence[int]) -> tuple[int, ...]:
    """Workers of each host, in the order of workers: ``"4,4,2"`` gives ``(4, 4, 2)``.

    Raises:
        SettingsError: not a list of positive whole numbers.
    """
    parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else list(given)
    try:
        counts = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        counts = ()
    if not counts or min(counts) < 1:
        raise out_of_range("hosts", given, _EXPECTED, "leave it out to have the hosts found")
    return counts


def numbers(counts: Sequence[int], workers: int) -> tuple[int, ...]:
    """The host of each worker: ``(4, 2)`` gives ``(0, 0, 0, 0, 1, 1)``.

    Raises:
        SettingsError: the hosts have more or fewer workers than the run.
    """
    if sum(counts) != workers:
        given = ",".join(map(str, counts))
        raise out_of_range("hosts", given, f"{_EXPECTED}, {workers} in all", "count the workers of each host")
    return tuple(host for host, count in enumerate(counts) for _ in range(count))
