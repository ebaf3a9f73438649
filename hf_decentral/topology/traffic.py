"""How many bytes a round costs, as a multiple of the parameters' bytes."""

from __future__ import annotations

from hf_decentral.rounds import Round


def sent(round: Round, coded: bool = False) -> tuple[float, ...]:
    """What each worker sends, in multiples of the parameters' bytes.

    A mean over ``q >= 3`` workers is one ring all-reduce, ``2 (q - 1) / q``; everything else travels whole to
    each worker that hears it. So does everything that is ``coded``: codes cannot be summed on the way.
    """
    if coded:
        return tuple(float(len(round.receivers(i))) for i in range(round.workers))
    groups = {worker: len(group) for group in round.groups or () for worker in group}
    return tuple(
        2 * (groups[i] - 1) / groups[i] if groups.get(i, 0) > 2 else float(len(round.receivers(i)))
        for i in range(round.workers)
    )
