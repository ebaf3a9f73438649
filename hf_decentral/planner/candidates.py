"""Which configurations are worth naming for so many workers on these hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from hf_decentral import averaging as methods
from hf_decentral import topology as topologies
from hf_decentral.cluster.measured import Measured
from hf_decentral.errors import SettingsError, TopologyError
from hf_decentral.optim.plan import make_plan
from hf_decentral.planner.payloads import coding, dtype_of, payload
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.topology.shards import sharded
from hf_decentral.topology.traffic import sent

ALLREDUCE, PLAIN = "allreduce", "plain"

TOPOLOGIES = (
    "complete",
    "aer",
    "hierarchical",
    "one_peer_exponential",
    "base_graph",
    "ring",
    "every(4, complete)",
    "every(4, aer)",
    "every(4, hierarchical)",
)
"""In their order: of two with the same rounds the first is named."""

AVERAGINGS = (PLAIN, "bf16", "int8", "int4")
HOOKS = ("bf16",)
"""Codecs of gradients for which torch has a hook of DistributedDataParallel."""

MOST_REMEMBERED = 4
"""Rounds of a period up to which a method is named that remembers two vectors as long as the parameters for
each of them (CHOCO)."""

Key = tuple[object, ...]


@dataclass(frozen=True)
class Candidate:
    """One way to keep workers together.

    Attributes:
        topology: its name, or ``"allreduce"``.
        averaging: the method, or of All-Reduce the hook; ``"plain"`` sends what it is.
        rounds: the topology; None: an All-Reduce of gradients.
    """

    topology: str
    averaging: str
    rounds: Topology | None = None


@dataclass
class Candidates:
    """What is compared.

    Attributes:
        found: All-Reduce first.
        left_out: why something that was asked for is not among them.
    """

    found: list[Candidate]
    left_out: dict[str, str] = field(default_factory=dict)


class _Asked(NamedTuple):
    """Whether somebody named them, so that it must be told why one is not there."""

    topology: bool
    averaging: bool


def candidates(
    measured: Measured, names: Sequence[str] | None = None, averagings: Sequence[str] | None = None
) -> Candidates:
    """All-Reduce, and the topologies with the averaging methods.

    Args:
        measured: the cluster; methods of its codings are compared too.
        names: topologies, as :func:`hf_decentral.topology.build` reads them; None: :data:`TOPOLOGIES`, where
            they serve these workers and are not another one under a second name.
        averagings: methods; None: :data:`AVERAGINGS`, where they send less than plain parameters.

    Raises:
        SettingsError: a name that does not exist.
    """
    tried = list(
        averagings if averagings is not None else dict.fromkeys((*AVERAGINGS, *measured.work.codings))
    )
    for name in tried:
        methods.build(name)
    found = Candidates([Candidate(ALLREDUCE, each) for each in (PLAIN, *HOOKS) if each in {PLAIN, *tried}])
    if measured.workers == 1:
        return found
    seen: set[Key] = set()
    asked = _Asked(names is not None, averagings is not None)
    for name in dict.fromkeys(TOPOLOGIES if names is None else names):
        if name != ALLREDUCE:
            _add(found, measured, name, tried, asked, seen)
    return found


def _add(
    to: Candidates,
    measured: Measured,
    name: str,
    tried: Sequence[str],
    asked: _Asked,
    seen: set[Key],
) -> None:
    try:
        topology = topologies.build(name, measured.workers, measured.hosts)
    except TopologyError as error:
        if asked.topology:
            to.left_out[name] = _reason(error)
        return
    key = (topology.name,) if asked.topology else same(topology)
    if key in seen:
        return
    seen.add(key)
    for averaging in tried:
        if averaging != PLAIN and not asked.averaging and not pays(topology, measured, averaging):
            continue
        try:
            make_plan(topology, "awc", averaging, measured.workers, measured.hosts, 4.0)
        except (SettingsError, TopologyError) as error:
            if asked.topology or asked.averaging:
                to.left_out[f"{name} + {averaging}"] = _reason(error)
            continue
        to.found.append(Candidate(topology.name, averaging, topology))


def _reason(error: Exception) -> str:
    return " ".join(part.strip() for part in str(error).split("\n")[:2])


def same(topology: Topology) -> Key:
    """Equal for two topologies whose rounds are the same and travel alike."""
    if topology.period is None:
        return (topology.name,)
    rounds = [round.rows if round.groups is None else round.groups for round in topology.rounds()]
    return (*rounds, bool(sharded(topology)))


def pays(topology: Topology, measured: Measured, averaging: str) -> bool:
    """Whether codes are fewer bytes than the parameters would be, for a memory that can be had."""
    if topology.period is None:
        return False
    talking = list({id(round): round for round in topology.rounds() if not round.idle}.values())
    if methods.build(averaging).repeats and len(talking) > MOST_REMEMBERED:
        return False
    if averaging not in measured.work.codings and not payload(averaging, dtype_of(measured)).coded:
        return False
    coded = coding(measured, averaging)
    shards = sharded(topology)
    plainly = fmean(fmean(sent(round, shards=shards.get(round.key) if shards else None)) for round in talking)
    return coded is not None and coded.payload * fmean(map(_copies, talking)) < plainly


def _copies(round: Round) -> float:
    """Messages that a worker sends where none can be summed on the way."""
    if round.groups is not None:
        return sum(len(group) * (len(group) - 1) for group in round.groups) / round.workers
    return fmean(sent(round, coded=True))
