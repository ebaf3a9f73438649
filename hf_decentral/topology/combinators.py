"""Topologies made of topologies: a schedule is a topology with idle rounds, not another concept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import gcd, inf

from hf_decentral.errors import out_of_range
from hf_decentral.errors.topology import asked_inside, nobody_left
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology

_LONGEST = 1_000_000  # steps of a period, which are looked at one by one


def every(steps: int, topology: Topology) -> Topology:
    """One round of ``topology`` in every ``steps`` steps, the last of them, with idle rounds before it.

    Raises:
        SettingsError: ``steps`` is below 1 or beyond all use, or ``topology`` is one of :func:`above`.
    """
    if steps < 1:
        raise out_of_range("steps", steps, "1 or more", "1 is a round in every step")
    _always(topology, "every")
    if steps * (topology.period or 1) > _LONGEST:
        most = _LONGEST // (topology.period or 1)
        raise out_of_range("steps", steps, f"at most {most:,}", "averaging so rarely is training apart")
    idle = Round.identity(topology.workers)
    return Topology(
        f"every({steps}, {topology.name})",
        topology.workers,
        None if topology.period is None else topology.period * steps,
        lambda step: topology(step // steps) if step % steps == steps - 1 else idle,
        phases=topology.phases,
        hosts=topology.hosts,
        push=topology.push,
    )


def above(distance: float, topology: Topology) -> Topology:
    """The rounds of ``topology``, in their order, in those steps in which the workers have drifted apart.

    They are idle while the consensus distance is below ``distance`` (consensus control, arXiv 2102.04828).
    All workers decide alike, on an estimate that is one step old: see :mod:`hf_decentral.optim.schedule`.

    Raises:
        SettingsError: ``distance`` is no number of 0 or more, or ``topology`` has such a distance already.
    """
    if not 0 <= distance < inf:
        raise out_of_range("distance", distance, "0 or more", "0 is a round in every step")
    _always(topology, "above")
    return replace(topology, name=f"above({float(distance)!r}, {topology.name})", least=float(distance))


def _always(topology: Topology, outside: str) -> None:
    if topology.least:
        raise asked_inside(topology.name, outside)


def rounds(count: int, topology: Topology) -> Topology:
    """``count`` rounds of ``topology`` in every step, composed into one: its weights are their product.

    It is one exchange, not ``count`` one after the other: a worker hears at once all whose numbers would have
    reached it, and sends to as many, up to ``2^count - 1`` where rounds have one peer each. A product that is
    a mean over groups is one collective, ``2 (q - 1) / q``. Making one multiplies ``[W, W]`` matrices.

    Raises:
        SettingsError: ``count`` is below 1, or ``topology`` is one of :func:`above`.
    """
    if count < 1:
        raise out_of_range("rounds", count, "1 or more", "every(8, ring) is a round in every eighth step")
    _always(topology, "rounds")
    period = None if topology.period is None else topology.period // gcd(topology.period, count)
    compose = lru_cache(maxsize=period or 8)(lambda step: _product(topology, step * count, count))
    return Topology(
        f"rounds({count}, {topology.name})",
        topology.workers,
        period,
        lambda step: compose(step if period is None else step % period),
        push=topology.push,
        hosts=topology.hosts,  # no phases: products depend on where one that never repeats enters them
    )


def _product(topology: Topology, begin: int, count: int) -> Round:
    whole = topology(begin).matrix()
    for step in range(begin + 1, begin + count):
        whole = topology(step).matrix() @ whole
    return Round.from_matrix(whole) if count > 1 else topology(begin)


def lazy(topology: Topology) -> Topology:
    """Every worker keeps half of its own parameters: weights ``(I + M) / 2``, eigenvalues nearer to 1.

    Differences shrink more slowly, and what made them change their sign does so no more: methods that cannot
    bear negative eigenvalues (``d2``) run on it, and adapt-while-combine bears larger steps. Everybody hears
    and tells the same workers as before, but an average of a group becomes messages between its pairs.

    Raises:
        SettingsError: ``topology`` is one of :func:`above`.
    """
    _always(topology, "lazy")
    halved = lru_cache(maxsize=topology.period or 8)(lambda step: _halved(topology(step)))
    return replace(
        topology,
        name=f"lazy({topology.name})",
        at=lambda step: halved(step % topology.period if topology.period else step),
        phases=tuple(map(lazy, topology.phases)),
        hosts=None,  # no longer a mean of hosts, which shards could carry
    )


def _halved(round: Round) -> Round:
    if round.idle:
        return round
    rows = ({j: weight / 2 for j, weight in row} for row in round.rows)
    kept = ({**row, i: row.get(i, 0.0) + 0.5} for i, row in enumerate(rows))
    return Round(tuple(tuple(sorted(row.items())) for row in kept))


def then(first: Topology, steps: int, second: Topology) -> Topology:
    """``first`` for so many steps, then ``second`` from its beginning. It never repeats as a whole.

    Raises:
        SettingsError: ``steps`` is below 0, the two are not for the same number of workers, or one of them is
            of :func:`above`.
    """
    if steps < 0:
        raise out_of_range("steps", steps, "0 or more", "0 leaves the first topology out")
    for topology in (first, second):
        _always(topology, "then")
    if first.workers != second.workers:
        advice = "build both topologies for the same workers"
        raise out_of_range("second.workers", second.workers, f"{first.workers} as in the first", advice)
    return Topology(
        f"then({first.name}, {steps}, {second.name})",
        first.workers,
        None,
        lambda step: first(step) if step < steps else second(step - steps),
        phases=(first, second),
        hosts=first.hosts or second.hosts,
        push=first.push or second.push,
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
        lambda step: _self_kept(topology(step), gone) if topology.push else topology(step).without(gone),
        phases=tuple(without(gone, phase) for phase in topology.phases),
        hosts=topology.hosts,
        least=topology.least,
        push=topology.push,
    )


def _self_kept(round: Round, gone: frozenset[int]) -> Round:
    """A round of push-sum in which each keeps for itself what the workers that are gone would have heard."""
    rows = [{j: w for j, w in row if j not in gone} for row in round.rows]
    for i in gone:
        for j, weight in rows[i].items():
            rows[j][j] = rows[j].get(j, 0.0) + weight
        rows[i] = {i: 1.0}
    return Round(tuple(tuple(sorted(row.items())) for row in rows))
