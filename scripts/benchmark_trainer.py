"""Step time of our Trainer beside the stock one, in one run, in alternating blocks.

    accelerate launch --config_file accelerate_configs/decentralized_aer.yaml scripts/benchmark_trainer.py
    torchrun --nproc-per-node 4 scripts/benchmark_trainer.py --variants stock allreduce aer --blocks 9

A block trains the same small GPT-2 for some steps; of each block the median step counts, of the slowest
worker. `stock` is transformers' Trainer, `allreduce` ours with that topology, the others are topologies.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState
from rich.console import Console
from rich.table import Table
from tqdm import tqdm
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from hf_decentral.trainer import DecentralizedTrainer, DecentralizedTrainingArguments


@dataclass
class Arguments:
    variants: list[str] = field(
        default_factory=lambda: ["stock", "allreduce", "aer"],
        metadata={"help": "stock, allreduce, or names of topologies; the first is the unit"},
    )
    blocks: int = field(default=7, metadata={"help": "blocks of each variant"})
    steps: int = field(default=12, metadata={"help": "steps in a block; the first three are not counted"})
    n_layer: int = 4
    n_embd: int = 256
    block_size: int = 64
    batch_size: int = 4
    apart: bool = field(default=False, metadata={"help": "as if every worker had a host of its own"})
    json: str | None = field(default=None, metadata={"help": "write the result there"})


class Stopwatch(TrainerCallback):
    """Seconds of each step."""

    decides_alike = True  # it wants nothing, so that no step needs an agreement of the workers

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        self.seconds.append(time.perf_counter() - self._began)


def block(variant: str, args: Arguments, data: list[dict[str, Any]], folder: str) -> float:
    """Median seconds of a step of one short training, of the slowest worker."""
    set_seed(0)
    size = {"n_positions": args.block_size, "n_embd": args.n_embd, "n_layer": args.n_layer}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=2048, n_head=max(1, args.n_embd // 64), **size))
    model.loss_type = "ForCausalLM"
    common = {
        "output_dir": folder, "max_steps": args.steps, "report_to": "none", "disable_tqdm": True,
        "per_device_train_batch_size": args.batch_size, "save_strategy": "no", "logging_strategy": "no",
        "optim": "adamw_torch", "use_cpu": not torch.accelerator.is_available(), "log_level": "error",
    }  # fmt: skip
    watch = Stopwatch()
    if variant == "stock":
        trainer = Trainer(model, TrainingArguments(**common), train_dataset=data, callbacks=[watch])
    else:
        hosts = ",".join("1" * PartialState().num_processes) if args.apart else None
        ours = DecentralizedTrainingArguments(**common, topology=variant, hosts=hosts)
        trainer = DecentralizedTrainer(model, ours, train_dataset=data, callbacks=[watch])
    trainer.train()
    seconds = [median(watch.seconds[3:])]
    gathered = [seconds] * PartialState().num_processes
    dist.all_gather_object(gathered, seconds)
    return float(max(each[0] for each in gathered))


def main() -> None:
    (args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
    PartialState(cpu=not torch.accelerator.is_available())
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 2048, (512, args.block_size), generator=generator)
    data = [{"input_ids": row, "labels": row} for row in ids]
    found: dict[str, list[float]] = {variant: [] for variant in args.variants}
    folder = tempfile.mkdtemp()
    for _ in tqdm(range(args.blocks + 1), desc="rounds of blocks", disable=dist.get_rank() != 0):
        for variant in args.variants:
            found[variant].append(block(variant, args, data, folder))
    if dist.get_rank() == 0:
        show(args, {variant: seconds[1:] for variant, seconds in found.items()})  # the first round warms up
    dist.destroy_process_group()


def show(args: Arguments, found: dict[str, list[float]]) -> None:
    """One row a variant: median step, and the ratio to the first variant in the same round."""
    unit = found[args.variants[0]]
    table = Table("variant", "step, ms", f"ratio to {args.variants[0]}", "quartiles")
    rows = {}
    for variant, seconds in found.items():
        ratios = [own / other for own, other in zip(seconds, unit, strict=True)]
        low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios * 3)
        rows[variant] = {"step_seconds": median(seconds), "ratio": median(ratios), "quartiles": [low, high]}
        table.add_row(
            variant, f"{median(seconds) * 1e3:.1f}", f"{median(ratios):.3f}", f"{low:.3f} to {high:.3f}"
        )
    Console(width=100).print(table)
    if args.json:
        Path(args.json).write_text(
            json.dumps({"workers": dist.get_world_size(), "rows": rows}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
