"""The workers of a benchmark, seen from one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from hf_decentral.bench.settings import Workload
from hf_decentral.errors.bench import other_world

STARTED = "HF_DECENTRAL_BENCH"
"""Set for workers that the benchmark started itself: the file for worker 0's result."""


@dataclass(frozen=True)
class World:
    """Where a worker stands.

    Attributes:
        worker: its number.
        workers: of how many.
        workers_per_host: how many of them share a host.
        device: where it computes.
        shaped: whether its host is a network namespace with a shaped link.
        machine: how many workers share this machine's memory.
    """

    worker: int
    workers: int
    workers_per_host: int
    device: torch.device
    shaped: bool
    machine: int

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.workers // self.workers_per_host)

    def gather(self, value: Any) -> list[Any]:
        """The value of every worker. Collective."""
        found: list[Any] = [None] * self.workers
        dist.all_gather_object(found, value)
        return found

    def together(self) -> None:
        """Wait for all workers. Collective."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            dist.barrier(device_ids=[self.device.index])
        else:
            dist.barrier()


def join(settings: Workload) -> World:
    """Join the workers that torchrun's variables tell of. Collective.

    Raises:
        LaunchError: the flags speak of another number of workers.
    """
    worker, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_WORLD_SIZE", workers))
    told = (settings.hosts, settings.workers_per_host)
    started = STARTED in os.environ
    if not started and any(told) and (told[0] or 1) * (told[1] or 1) != workers:
        raise other_world(told[0] or 1, told[1] or 1, workers)
    here = workers if started else local
    device = _device(worker if started else int(os.environ.get("LOCAL_RANK", "0")), here)
    if device.type == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return World(worker, workers, local, device, started and settings.link != "none", here)


def here(hosts: Sequence[int], device: torch.device) -> World:
    """The workers of a run that somebody else has joined.

    Args:
        hosts: the host of each worker.
        device: where this one computes.
    """
    worker = dist.get_rank()
    each = list(hosts).count(hosts[worker])
    return World(worker, len(hosts), each, device, False, each)


def _device(number: int, workers: int) -> torch.device:
    """A GPU where every worker of this machine has one of its own, else the CPU."""
    if not torch.cuda.is_available() or torch.cuda.device_count() < workers:
        return torch.device("cpu")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)
