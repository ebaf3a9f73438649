"""Clusters for the tests of the planner."""

from __future__ import annotations

from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.measured import Coding, Measured, Work

GPT2 = 124_439_808 * 4.0
CODINGS = {"int8": Coding(0.26, 0.004, 0.002), "int4": Coding(0.14, 0.006, 0.003)}


def cluster(hosts: int = 4, each: int = 1, link: str = "1gbit", **changes) -> Measured:
    """``hosts`` with ``each`` workers; a step of 250 ms of 20 MB unless changed."""
    numbers = tuple(host for host in range(hosts) for _ in range(each))
    work = {"parameter_bytes": 20e6, "local_seconds": 0.004, "combine_seconds": 0.002}
    work.update({name: changes.pop(name) for name in list(changes) if name in Work.__dataclass_fields__})
    unsure = changes.pop("uncertainty", {"compute": 0.02, "link": 0.05, "inside": 0.05})
    about = changes.pop("about", {})
    described = {
        "compute": "0.246",
        "link": link,
        "latency": 1e-4,
        "hosts": numbers,
        "inside": "40gbit",
        "inside_latency": 1e-5,
    }
    return Measured(
        hosts * each,
        Cluster(**{**described, **changes}),
        Work(**work),
        "test",
        uncertainty=unsure,
        about=about,
    )
