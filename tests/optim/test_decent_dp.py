"""The same run as the package of the paper's authors gives: four processes, float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hf_decentral import AccumAdamW, decentralize
from hf_decentral.rounds import Round
from hf_decentral.topology import Topology, build
from tests.processes import run

WORKERS, STEPS = 4, 9
SETTINGS = {"lr": 0.05, "betas": (0.9, 0.98), "weight_decay": 0.1}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).double()


def loss(called: nn.Module, worker: int, step: int) -> Tensor:
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(10 * step + worker), dtype=torch.float64)
    return (called(x) - worker).square().mean()


def weights(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def theirs(worker: int, name: str) -> tuple[Tensor, list[list[int]]]:
    """Their parameters after the steps, and with whom this worker averages in each round of a period."""
    from decent_dp.ddp import DecentralizedDataParallel
    from decent_dp.optim import AccumAdamW as TheirAccumAdamW

    net = model()
    wrapped = DecentralizedDataParallel(
        net,
        lambda named: TheirAccumAdamW([p for _, p in named], accum_iter=2, **SETTINGS),
        topology=name,
        _local_world_size=2,
    )
    for step in range(STEPS):
        loss(wrapped, worker, step).backward()
    return weights(net), [edge.ranks for edge in wrapped._topo._edges]


def ours(worker: int, topology_name: str, rounds: list[list[list[int]]]) -> Tensor:
    net = model()
    local = AccumAdamW(net.parameters(), accum=2, **SETTINGS)
    decentralize(local, as_they_count(topology_name, rounds), model=net)
    for step in range(STEPS):
        local.zero_grad()
        loss(net, worker, step).backward()
        local.step()
    return weights(net)


def as_they_count(name: str, rounds: list[list[list[int]]]) -> Topology:
    """Their rounds 1, 3, 4, 5, ... average the parameters after 1, 2, 3, 4, ... steps: 2 is left out."""
    cycle = Topology.cycle(name, [Round.average(groups, WORKERS) for groups in rounds])
    return Topology(name, WORKERS, None, lambda step: cycle(step if step < 2 else step + 1))


@pytest.mark.parametrize("name", ["complete", "one-peer-exp", "alternating-exp-ring"])
def test_the_same_parameters_as_decent_dp(name: str) -> None:
    found = run(WORKERS, theirs, name)
    period = len(found[0][1])
    rounds = [sorted({tuple(sorted(f[1][t])) for f in found}) for t in range(period)]
    if name == "alternating-exp-ring":
        own = build("aer", WORKERS, [0, 0, 1, 1])
        assert [list(own(t).groups or ()) for t in range(period)] == rounds
    for (expected, _), mine in zip(found, run(WORKERS, ours, name, rounds), strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)
