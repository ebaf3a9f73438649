"""From what the workers found to the figures that are told: medians over blocks of what each block says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from statistics import mean, median, quantiles
from typing import Any, TypeVar

from hf_decentral.bench.rates import WIRE_OVER_PAYLOAD
from hf_decentral.cluster.rates import bits_per_second

Case = dict[str, Any]
T = TypeVar("T")


def cases(raw: Mapping[str, Any], rates: Sequence[str]) -> list[Case]:
    """One case a variant.

    Args:
        raw: what :func:`hf_decentral.bench.measure.measure` gave on worker 0.
        rates: of each host, for the limit; ``"none"`` where there is none.

    Returns:
        Cases with these keys; None where there is nothing to compare with, or nothing that counts.

        - ``variant``.
        - ``step_seconds``: median over the blocks of the slowest worker's time of a step; ``low`` and
          ``high`` are its quartiles.
        - ``ratio_to_compute``: median of its time over that of ``none`` in the same block.
        - ``ratio_to_ddp``: the same of DDP's time over its own, so its speed.
        - ``ratio_to_limit``: the same of its time over its limit, which is the compute time or what its own
          bytes need on the wire, whichever is longer. A shaper counts them with their framing; elsewhere
          that of TCP/IP is added.
        - ``sent_bytes``: of the host that sends most, per step, the mean over the blocks.
        - ``waited_seconds``: per step, of the worker that waits longest, as our handle counts it; for other
          variants it is the time above ``none``.
        - ``hidden_share``: of the seconds that its bytes need on the wire, the share in which nobody waited;
          None where no rate is given or nothing travels.
        - ``extra_memory_bytes``: the peak of a step above that of ``none``, the largest over the workers.
    """
    table = {name: _Blocks(raw, name, rates) for name in raw["found"][0]}
    return [
        _case(name, table) | {"extra_memory_bytes": _above(raw, name), **table[name].notes} for name in table
    ]


def _case(name: str, table: Mapping[str, _Blocks]) -> Case:
    """What the blocks of one variant say beside those of ``none`` and of DDP."""
    own, unit, ddp = table[name], table["none"], table.get("ddp")
    low, high = _quartiles(own.seconds)
    limits = [max(seconds, own.wire_seconds) for seconds in unit.seconds]
    waited = own.waited
    if waited is None:
        waited = [max(0.0, s - c) for s, c in zip(own.seconds, unit.seconds, strict=True)]
    hidden = max(0.0, 1 - median(waited) / own.wire_seconds) if own.wire_seconds else None
    return {
        "variant": name,
        "step_seconds": median(own.seconds),
        "low": low,
        "high": high,
        "ratio_to_ddp": _ratio(ddp.seconds, own.seconds) if ddp is not None else None,
        "ratio_to_limit": _ratio(own.seconds, limits),
        "ratio_to_compute": _ratio(own.seconds, unit.seconds),
        "sent_bytes": own.sent,
        "waited_seconds": median(waited),
        "hidden_share": hidden,
    }


def memory_cases(raw: Mapping[str, Any]) -> list[Case]:
    """One case a variant of a run with ``--memory``; ``memory_above_local`` is in units of the parameters."""
    return [
        {
            "variant": name,
            "extra_memory_bytes": _above(raw, name),
            "memory_above_local": _above(raw, name) / raw["parameter_bytes"],
        }
        for name in raw["found"][0]
        if name != "none"
    ]


class _Blocks:
    """One variant's numbers, one for each block, of the slowest worker and of the host that sends most."""

    def __init__(self, raw: Mapping[str, Any], name: str, rates: Sequence[str]) -> None:
        workers = [found[name][1] for found in raw["found"]]
        local = raw["workers_per_host"]
        self.notes: dict[str, Any] = raw["found"][0][name][2]
        blocks = list(zip(*workers, strict=True))
        self.seconds = [max(sample[0] for sample in block) for block in blocks]
        self.waited = _each(blocks, lambda block: max(sample[2] for sample in block), 2)
        # Bytes are a count: where a variant talks only now and then, a median would miss some of it.
        sent = _each(blocks, lambda block: _hosts(block, local), 1)
        hosts = None if sent is None else [mean(host) for host in zip(*sent, strict=True)]
        self.sent = None if hosts is None else max(hosts)
        framing = 1.0 if raw["framed"] else WIRE_OVER_PAYLOAD
        self.wire_seconds = framing * max(
            starmap(_seconds_on_wire, zip(hosts or [0.0] * len(rates), rates, strict=True))
        )


def _each(blocks: Sequence[Any], take: Callable[[Any], T], column: int) -> list[T] | None:
    """A number for each block, or None where one was not counted."""
    if any(sample[column] is None for block in blocks for sample in block):
        return None
    return [take(block) for block in blocks]


def _hosts(block: Sequence[Any], workers_per_host: int) -> list[float]:
    """What each host sent in a step."""
    sent = [sample[1] for sample in block]
    return [sum(sent[k : k + workers_per_host]) for k in range(0, len(sent), workers_per_host)]


def _seconds_on_wire(sent_bytes: float, rate: str) -> float:
    bits = bits_per_second(rate)
    return 0.0 if bits is None else 8 * sent_bytes / bits


def _ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median over the blocks of the ratio inside a block."""
    return median(a / b for a, b in zip(above, below, strict=True))


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def _above(raw: Mapping[str, Any], name: str) -> int:
    """Memory above that of ``none``, the largest over the workers."""
    return max(int(found[name][0]) - int(found["none"][0]) for found in raw["found"])
