"""Laws that every averaging method of the table keeps, on the in-memory transport."""

from __future__ import annotations

import pytest
import torch

from hf_decentral.averaging import TABLE, build
from hf_decentral.errors import SettingsError
from hf_decentral.optim.flight import Flight
from hf_decentral.rounds import Round
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory

WORKERS = 6


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("topology", ["ring", "complete", "aer"])
def test_the_mean_is_kept_and_equal_workers_stay_equal(name: str, topology: str) -> None:
    rounds = build_topology(topology, WORKERS)
    x = torch.randn(WORKERS, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    same = torch.ones(WORKERS, 40, dtype=torch.float64)
    mean = x.mean(0)
    transport = Memory(WORKERS)
    states = ({}, {})
    for step in range(8):
        for lane, (values, state) in enumerate(zip((x, same), states, strict=True)):
            Flight(build(name)(values, rounds(step), state), values, transport, step, lane).finish()
    assert torch.allclose(x.mean(0), mean, atol=1e-12, rtol=0)
    assert torch.allclose(same, torch.ones_like(same), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", TABLE)
def test_beginning_a_round_changes_nothing(name: str) -> None:
    x = torch.randn(WORKERS, 8)
    before, state = x.clone(), {}
    flight = Flight(build(name)(x, Round.identity(WORKERS), state), x, Memory(WORKERS), 0, 0)
    flight.settle()
    assert torch.equal(x, before)
    assert state == {}


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'plain'"):
        build("plian")
