"""What gossip adds to local training: one receive buffer, and nothing anew in a step."""

from __future__ import annotations

import pytest
import torch

from hf_decentral import decentralize, gossip
from tests import allocations
from tests.processes import run

SIZE = 1 << 20


def allocated(worker: int, topology: str, averaging: str = "plain") -> tuple[int, float]:
    """Bytes that five exchanges allocate once buffers stand, and the parameters held besides."""
    x = torch.nn.Parameter(torch.zeros(SIZE))
    optimizer = decentralize(torch.optim.SGD([x], lr=0.1), topology, averaging=averaging)
    for _ in range(3):
        x.grad = torch.ones(SIZE)
        optimizer.step()
    handle = gossip(optimizer)
    return allocations.of_exchanges(handle), allocations.held(handle) / x.nbytes


@pytest.mark.parametrize(
    ("topology", "buffers"), [("aer", 1), ("complete", 1), ("one_peer_exponential", 1), ("ring", 2)]
)
def test_an_exchange_allocates_nothing_and_keeps_one_buffer_a_neighbour(topology: str, buffers: int) -> None:
    for fresh, held in run(4, allocated, topology):
        assert fresh < SIZE // 100, "bytes allocated in five exchanges"
        assert held <= buffers * 1.05


@pytest.mark.parametrize("averaging", ["bf16", "fp16", "int8", "int4"])
def test_codes_are_made_and_read_without_an_allocation(averaging: str) -> None:
    for fresh, _ in run(2, allocated, "one_peer_exponential", averaging):
        assert fresh < SIZE // 100, "bytes allocated in five exchanges"
