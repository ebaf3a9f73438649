"""How many steps to time: all workers the same number, so that none waits for one that has stopped."""

from __future__ import annotations

import torch
import torch.distributed as dist

WARMUP_STEPS = 3
"""Not counted: memory is found, kernels are chosen, data loaders start."""
FEWEST_STEPS, MOST_STEPS = 10, 400


def slowest_seconds(step_seconds: float, device: torch.device) -> float:
    """What a step of the slowest worker takes. Collective.

    Args:
        step_seconds: what a step of this worker takes; infinite where it has timed none.
        device: where it computes.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        slowest = torch.tensor([step_seconds], dtype=torch.float64)
        if "nccl" in dist.get_backend():
            slowest = slowest.to(device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return float(slowest)
    return step_seconds


def enough(step_seconds: float, seconds: float) -> int:
    """The number of steps that fit into some time, within bounds."""
    return int(min(max(seconds / max(step_seconds, 1e-9), FEWEST_STEPS), MOST_STEPS))
