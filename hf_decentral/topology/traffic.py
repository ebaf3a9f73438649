"""How many bytes a round costs, as a multiple of the parameters' bytes."""

from __future__ import annotations

from collections.abc import Mapping

from hf_decentral.rounds import Round
from hf_decentral.topology.shards import Shards


def sent(round: Round, coded: bool = False, shards: Mapping[int, Shards] | None = None) -> tuple[float, ...]:
    """What each worker sends, in multiples of the parameters' bytes.

    A worker among ``shards``, with ``m`` on its host, sends ``(m - 1) / m`` in each of its two exchanges
    inside the host, and ``1 / m`` to the other host if there is one. A mean over ``q >= 3`` workers is one
    ring all-reduce, ``2 (q - 1) / q``; everything else travels whole to each worker that hears it. So does
    everything that is ``coded``: codes cannot be summed on the way.
    """
    if coded:
        return tuple(float(len(round.receivers(i))) for i in range(round.workers))
    groups = {worker: len(group) for group in round.groups or () for worker in group}
    return tuple(_sent(round, i, groups.get(i, 0), (shards or {}).get(i)) for i in range(round.workers))


def _sent(round: Round, worker: int, group: int, shards: Shards | None) -> float:
    if shards is not None:
        each = len(shards.inside)
        return (2 * (each - 1) + (1 if shards.across else 0)) / each
    return 2 * (group - 1) / group if group > 2 else float(len(round.receivers(worker)))
