"""What gossip adds to local training: one receive buffer, and nothing anew in a step."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from hf_decentral import decentralize, gossip
from tests.processes import run

SIZE = 1 << 20


def allocated(worker: int, topology: str) -> tuple[int, float]:
    """Bytes that five exchanges allocate once buffers stand, and the parameters held besides."""
    x = torch.nn.Parameter(torch.zeros(SIZE))
    optimizer = decentralize(torch.optim.SGD([x], lr=0.1), topology)
    for _ in range(3):
        x.grad = torch.ones(SIZE)
        optimizer.step()
    handle = gossip(optimizer)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found, torch.no_grad():
        for _ in range(5):
            handle.before_step()
            handle.after_step()
    fresh = sum(max(0, event.self_cpu_memory_usage) for event in found.events())
    held = sum(buffer.nbytes for buffer in handle.transport._buffers.values())
    return fresh, held / x.nbytes


@pytest.mark.parametrize(
    ("topology", "buffers"), [("aer", 1), ("complete", 1), ("one_peer_exponential", 1), ("ring", 2)]
)
def test_an_exchange_allocates_nothing_and_keeps_one_buffer_a_neighbour(topology: str, buffers: int) -> None:
    for fresh, held in run(4, allocated, topology):
        assert fresh < SIZE // 100, "bytes allocated in five exchanges"
        assert held <= buffers * 1.05
