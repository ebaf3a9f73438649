"""The simulator and the processes run the same code and give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

from hf_decentral.optim import decentralize
from hf_decentral.topology import TABLE, Topology
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory
from tests.optim.cases import OPTIMIZERS, pairs, parameters, train_one, train_stacked
from tests.processes import run

STEPS, WORKERS = 20, 4
ORDERS = ("awc", "atc", "cta")
SERVED = [name for name, entry in TABLE.items() if entry.serves(WORKERS)]


def one_worker(worker: int, build: Callable[[int], Topology]) -> dict[tuple[str, str], list[Tensor]]:
    found = {}
    for order, (name, make) in product(ORDERS, OPTIMIZERS.items()):
        params = [torch.nn.Parameter(p) for p in parameters()]
        model = torch.nn.Module()
        optimizer = decentralize(make(params), build(WORKERS), order=order, model=model)
        train_one(params, optimizer, STEPS, worker)
        found[order, name] = [p.detach().clone() for p in params]
    return found


def simulated(build: Callable[[int], Topology]) -> dict[tuple[str, str], list[Tensor]]:
    found = {}
    for order, (name, make) in product(ORDERS, OPTIMIZERS.items()):
        params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in parameters()]
        optimizer = decentralize(
            make(params), build(WORKERS), order=order, model=torch.nn.Module(), transport=Memory(WORKERS)
        )
        train_stacked(params, optimizer, STEPS, WORKERS)
        found[order, name] = [p.detach().clone() for p in params]
    return found


@pytest.mark.parametrize("name", ["pairs", *SERVED])
def test_four_processes_equal_the_simulator(name: str) -> None:
    """To the last bit where workers talk in pairs; a mean over three and more is one collective, which sums
    in an order of its own."""
    build = pairs if name == "pairs" else partial(build_topology, name)
    here = simulated(build)
    there = run(WORKERS, one_worker, build)
    for how, params in here.items():
        for w in range(WORKERS):
            for k, p in enumerate(params):
                found = there[w][how][k]
                if name == "complete":
                    torch.testing.assert_close(found, p[w], rtol=1e-5, atol=1e-5)
                else:
                    assert torch.equal(found, p[w]), (how, w, k)
