"""Step time and memory of neighbour averaging beside DDP, in one run, in alternating blocks.

    accelerate launch --config_file accelerate_configs/decentralized_aer.yaml scripts/benchmark.py
    torchrun --nproc-per-node 4 scripts/benchmark.py --variants local ddp aer complete

Each variant trains its own copy of one GPT-2 on random tokens. A block is some steps of one variant; blocks
of the variants alternate, so that whatever else the machine does meets all of them. Time is that of the
slowest worker, memory is what the process holds resident above a local run.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
import torch
import torch.distributed as dist
from accelerate import Accelerator
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, set_seed

from hf_decentral import decentralize, gossip
from hf_decentral.topology import names


@dataclass
class Arguments:
    variants: list[str] = field(
        default_factory=lambda: ["local", "ddp", "aer", "complete"],
        metadata={"help": "local (no communication), ddp, or names of topologies; the first is the unit"},
    )
    blocks: int = field(default=9, metadata={"help": "blocks of each variant"})
    steps: int = field(default=6, metadata={"help": "steps in a block"})
    n_layer: int = 4
    n_embd: int = 256
    block_size: int = 64
    batch_size: int = 4
    apart: bool = field(default=False, metadata={"help": "as if every worker had a host of its own"})
    memory: bool = field(default=False, metadata={"help": "measure memory instead: SGD on one large matrix"})
    memory_mb: int = field(default=256, metadata={"help": "megabytes of parameters in that measurement"})
    json: str | None = field(default=None, metadata={"help": "write the result there"})


def trainer(variant: str, model: nn.Module, optimizer: torch.optim.Optimizer, apart: bool) -> nn.Module:
    """Prepare a model and its optimizer for a variant; returns what is called in the forward pass."""
    if variant == "ddp":
        return DistributedDataParallel(model)
    if variant in names():
        hosts = list(range(dist.get_world_size())) if apart else None
        decentralize(optimizer, variant, model=model, hosts=hosts)
    elif variant != "local":
        raise SystemExit(f"unknown variant {variant!r}; known are local, ddp, {', '.join(names())}")
    return model


def stepper(variant: str, args: Arguments, device: torch.device) -> Callable[[], None]:
    """One training step of a variant."""
    set_seed(0)
    heads = max(1, args.n_embd // 64)
    config = GPT2Config(
        vocab_size=2048, n_positions=args.block_size, n_embd=args.n_embd, n_layer=args.n_layer, n_head=heads,
        bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    called = trainer(variant, model, optimizer, args.apart)
    ids = torch.randint(0, 2048, (args.batch_size, args.block_size), device=device)

    def step() -> None:
        called(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def slowest(seconds: float, device: torch.device) -> float:
    """The time of the worker that took longest."""
    found = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found)


def measure(args: Arguments, device: torch.device) -> dict[str, list[float]]:
    """Seconds a step, one number for each block of each variant."""
    steps = {variant: stepper(variant, args, device) for variant in args.variants}
    found: dict[str, list[float]] = {variant: [] for variant in args.variants}
    for block in tqdm(range(args.blocks + 1), desc="blocks", disable=dist.get_rank() != 0):
        for variant in (
            args.variants[block % len(args.variants) :] + args.variants[: block % len(args.variants)]
        ):
            dist.barrier()
            began = time.perf_counter()
            for _ in range(args.steps):
                steps[variant]()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds = slowest((time.perf_counter() - began) / args.steps, device)
            if block:  # the first one warms up
                found[variant].append(seconds)
    return found


def resident(variant: str, megabytes: int, apart: bool) -> float:
    """Bytes that the process holds after some steps of a variant, above what it held before."""
    gc.collect()
    before = psutil.Process().memory_info().rss
    weight = nn.Parameter(torch.ones(megabytes, 1 << 18))
    model = nn.Module()
    model.weight = weight
    optimizer = torch.optim.SGD([weight], lr=0.0, foreach=True)
    trainer(variant, model, optimizer, apart)
    for _ in range(3):
        weight.grad = torch.zeros_like(weight).add_(1)  # touched, as a gradient is
        optimizer.step()
        weight.grad = None
    if variant in names():
        gossip(optimizer).flush()
    held = psutil.Process().memory_info().rss - before
    dist.barrier()
    return held


def memory(args: Arguments) -> dict[str, float]:
    """Memory above local training as a multiple of the parameters' bytes, the largest over the workers."""
    local = resident("local", args.memory_mb, args.apart)
    variants = [variant for variant in args.variants if variant not in ("local", "ddp")]
    found = {}
    for variant in variants:
        above = (resident(variant, args.memory_mb, args.apart) - local) / (args.memory_mb << 20)
        value = torch.tensor(above)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        found[variant] = float(value)
    return found


def rows(found: dict[str, list[float]], args: Arguments) -> list[dict[str, Any]]:
    """Median and quartiles of each variant, and the median of its ratio to the others in the same block."""
    made = []
    for variant, seconds in found.items():
        low, _, high = quantiles(seconds, n=4)
        ratios = {
            f"ratio_to_{other}": median(a / b for a, b in zip(seconds, found[other], strict=True))
            for other in args.variants
            if other in ("local", "ddp")
        }
        made.append({"variant": variant, "step_seconds": median(seconds), "low": low, "high": high, **ratios})
    return made


def show(made: list[dict[str, Any]]) -> None:
    """The rows as a table."""
    table = Table(*made[0])
    for row in made:
        table.add_row(*(f"{v:.4f}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)


def main() -> None:
    (args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
    if not torch.accelerator.is_available():
        os.environ["ACCELERATE_USE_CPU"] = "true"
        torch.set_num_threads(1)
    accelerator = Accelerator()
    if accelerator.num_processes < 2:
        raise SystemExit("this compares ways of talking: start it with several workers, see --help")
    made: list[dict[str, Any]]
    if args.memory:
        made = [{"variant": name, "memory_above_local": value} for name, value in memory(args).items()]
    else:
        made = rows(measure(args, accelerator.device), args)
    if accelerator.is_main_process:
        show(made)
        if args.json:
            aside = Path(f"{args.json}.part")
            aside.write_text(json.dumps({"workers": accelerator.num_processes, "rows": made}, indent=2))
            aside.replace(args.json)


if __name__ == "__main__":
    main()
