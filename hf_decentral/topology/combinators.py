"""Topologies made of topologies: a schedule is a topology with idle rounds, not another concept."""

from __future__ import annotations

from collections.abc import Iterable

from hf_decentral.errors import out_of_range
from hf_decentral.errors.topology import nobody_left
from hf_decentral.rounds import Round, Row
from hf_decentral.topology.base import Topology

_NOTHING = 1e-15  # below this a weight is what rounding left over


def every(steps: int, topology: Topology) -> Topology:
    """One round of ``topology`` in every ``steps`` steps, the last of them, with idle rounds before it.

    Raises:
        SettingsError: ``steps`` is below 1.
    """
    if steps < 1:
        raise out_of_range("steps", steps, "1 or more", "1 is a round in every step")
    idle = Round.identity(topology.workers)
    return Topology(
        f"every({steps}, {topology.name})",
        topology.workers,
        None if topology.period is None else topology.period * steps,
        lambda step: topology(step // steps) if step % steps == steps - 1 else idle,
        phases=topology.phases,
    )


def then(first: Topology, steps: int, second: Topology) -> Topology:
    """``first`` for so many steps, then ``second`` from its beginning. It never repeats as a whole.

    Raises:
        SettingsError: ``steps`` is below 0, or the two are not for the same number of workers.
    """
    if steps < 0:
        raise out_of_range("steps", steps, "0 or more", "0 leaves the first topology out")
    if first.workers != second.workers:
        advice = "build both topologies for the same workers"
        raise out_of_range("second.workers", second.workers, f"{first.workers} as in the first", advice)
    return Topology(
        f"then({first.name}, {steps}, {second.name})",
        first.workers,
        None,
        lambda step: first(step) if step < steps else second(step - steps),
        phases=(first, second),
    )


def without(dead: Iterable[int], topology: Topology) -> Topology:
    """The same rounds when some workers take no part. The mean of the others is kept, in directed rounds too.

    Raises:
        SettingsError: ``dead`` names a worker that does not exist.
        TopologyError: nobody is left.
    """
    gone = frozenset(dead)
    workers = topology.workers
    if not gone <= frozenset(range(workers)):
        advice = "workers are numbered from 0"
        raise out_of_range("dead", sorted(gone), f"workers of 0 to {workers - 1}", advice)
    if len(gone) == workers:
        raise nobody_left(workers)
    return Topology(
        f"without({sorted(gone)}, {topology.name})",
        workers,
        topology.period,
        lambda step: _mended(topology(step), gone),
        phases=tuple(without(gone, phase) for phase in topology.phases),
    )


def _mended(round: Round, gone: frozenset[int]) -> Round:
    """``round`` without the weights from and to ``gone``, doubly stochastic.

    A worker has lost the weights with which it heard the dead, and those with which they heard it. It takes
    back for itself what it lost of both: in a symmetric round that is all, as in :meth:`Round.without`. In a
    directed one somebody heard a dead worker who itself heard somebody else; those two close the gap.
    """
    rows = [{j: w for j, w in row if j not in gone} for row in round.rows]
    needs = [0.0] * round.workers  # what is missing from the sum of a row
    gives = [0.0] * round.workers  # what is missing from the sum of a column
    for i, row in enumerate(round.rows):
        for j, weight in row:
            if j in gone and i not in gone:
                needs[i] += weight
            elif i in gone and j not in gone:
                gives[j] += weight
    for i, need in enumerate(needs):
        own = min(need, gives[i])
        if own > 0:
            rows[i][i] = rows[i].get(i, 0.0) + own
            needs[i] -= own
            gives[i] -= own
    givers = [j for j, left in enumerate(gives) if left > _NOTHING]
    for i, need in enumerate(needs):
        while need > _NOTHING and givers:
            j = givers[0]
            moved = min(need, gives[j])
            rows[i][j] = rows[i].get(j, 0.0) + moved
            need -= moved
            gives[j] -= moved
            if gives[j] <= _NOTHING:
                givers.pop(0)
    mended: list[Row] = [tuple(sorted(row.items())) for row in rows]
    for i in gone:
        mended[i] = ((i, 1.0),)
    return Round(tuple(mended))
