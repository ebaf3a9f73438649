"""What exchanges allocate, on every thread of the process."""

from __future__ import annotations

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from hf_decentral.optim import Gossip


def of_exchanges(handle: Gossip, count: int = 5) -> int:
    """Bytes that so many exchanges allocate anew, those of the thread behind the computing among them."""
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with (
        profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, experimental_config=every_thread
        ) as found,
        torch.no_grad(),
    ):
        for _ in range(count):
            handle.before_step()
            handle.after_step()
        handle.settle()
    return sum(max(0, event.self_cpu_memory_usage) for event in found.events())


def held(handle: Gossip) -> int:
    """Bytes of the transport's buffers."""
    return sum(buffer.nbytes for buffer in handle.transport._buffers.values())
