"""Averaging methods of others: torch's post-local SGD, and the package of the paper's authors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hf_decentral.errors.bench import no_decent_dp

# Their name of each topology, by ours and by theirs.
DECENT_TOPOLOGIES = {
    "complete": "complete",
    "ring": "ring",
    "one_peer_exponential": "one-peer-exp",
    "one-peer-exp": "one-peer-exp",
    "aer": "alternating-exp-ring",
    "alternating-exp-ring": "alternating-exp-ring",
}


def post_local_sgd(
    wrapped: DistributedDataParallel, optimizer: torch.optim.Optimizer, period: int, workers_per_host: int
) -> tuple[nn.Module, Any]:
    """Post-local SGD (Lin et al. 2020, arXiv 1808.07217) as torch has it, from the first step on.

    Gradients are averaged inside a host in every step, parameters over all workers in every ``period``-th.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    group = _host_group(workers_per_host)
    state = hook.PostLocalSGDState(None, group, 0)  # type: ignore[no-untyped-call]
    wrapped.register_comm_hook(state, hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period, warmup_steps=0)
    return wrapped, PostLocalSGDOptimizer(optimizer, averager)


_groups: dict[int, Any] = {}


def _host_group(workers_per_host: int) -> Any:
    """The process group of this worker's host, made once. Collective."""
    if workers_per_host not in _groups:
        group, _ = dist.new_subgroups(workers_per_host)  # type: ignore[no-untyped-call]
        _groups[workers_per_host] = group
    return _groups[workers_per_host]


def decent_dp(
    model: nn.Module, optimizer: Callable[[Any], torch.optim.Optimizer], name: str, workers_per_host: int
) -> tuple[nn.Module, None, Callable[[], object]]:
    """Decent-DP (From Promise to Practice, arXiv 2410.11998), which steps inside backward.

    Raises:
        LaunchError: it is not installed. Where these workers cannot form its topology, its own errors.
    """
    try:
        from decent_dp.ddp import DecentralizedDataParallel
        from loguru import logger
    except ImportError as error:
        raise no_decent_dp() from error

    def local(named: list[tuple[str, Any]]) -> torch.optim.Optimizer:
        return optimizer([p for _, p in named])

    logger.disable("decent_dp")
    wrapped = DecentralizedDataParallel(
        model, local, topology=DECENT_TOPOLOGIES[name], _local_world_size=workers_per_host
    )
    return wrapped, None, partial(_settle, wrapped)


def _settle(wrapped: Any) -> None:
    for work in wrapped._comm_ops:
        if work is not None:
            work.wait()
