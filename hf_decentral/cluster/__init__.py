"""Time: how long workers compute and their links carry, and what that makes of a run. It knows no models."""

from __future__ import annotations

from hf_decentral.cluster.clock import Clock
from hf_decentral.cluster.laws import Cluster, Law, law
from hf_decentral.cluster.meetings import Meetings
from hf_decentral.cluster.members import Members, givers, neighbours, welcome_
from hf_decentral.cluster.pairs import Pairs, Replicas, Staleness
from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.cluster.rows import Rows

__all__ = [
    "Clock",
    "Cluster",
    "Law",
    "Meetings",
    "Members",
    "Pairs",
    "Replicas",
    "Rows",
    "Staleness",
    "bits_per_second",
    "givers",
    "law",
    "neighbours",
    "welcome_",
]
