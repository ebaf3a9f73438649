"""Quality at equal tokens: GPT-2 trained with All-Reduce and with neighbour averaging, on the simulator.

All workers live in one process (the engine is the one that runs on several, and the tests hold them equal),
so that a run needs no launcher and a grid of runs fills the cores of one machine. Each worker reads its own
shard; All-Reduce takes the mean gradient over the same shards. What is measured is the validation loss of
the mean over the workers.

    python scripts/compare_quality.py --dataset my/texts --plan plan.yaml --output_dir found
    python scripts/compare_quality.py --output_dir found      # only print what was found so far

A plan is a list of runs; a setting that is a list is a grid:

    - {method: allreduce, lr: [1e-3, 2e-3, 4e-3], seed: 0}
    - {method: dadamw, topology: aer, lr: [2e-3, 4e-3, 8e-3], seed: 0}
    - {method: accumadamw, topology: aer, accum: 4, horizon: steps, lr: 4e-3, seed: [0, 1, 2]}
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser

from hf_decentral import topology as topologies
from hf_decentral.data import TextData, load_text
from hf_decentral.optim import averaged, decentralize, gossip
from hf_decentral.optim.accum_adam import AccumAdamW
from hf_decentral.transport import Memory

VOCABULARY = 2048
CONTEXTS = 512  # of the validation split


@dataclass
class Arguments:
    output_dir: str = field(
        metadata={"help": "folder of the results, one JSON file a run; runs found there are not repeated"}
    )
    plan: str | None = field(default=None, metadata={"help": "YAML list of runs"})
    dataset: str | None = field(default=None, metadata={"help": "text as pretrain_gpt2.py takes it"})
    jobs: int = field(default=2, metadata={"help": "runs at the same time, one thread each"})


@dataclass(frozen=True)
class Run:
    """One training run; ``steps * workers * batch * block`` tokens."""

    method: str
    lr: float
    seed: int = 0
    topology: str = "aer"
    averaging: str = "plain"  # what is sent, as int8 or top_k(0.01)
    accum: int = 4
    horizon: str = "windows"
    complete_steps: int = 0  # a first phase on the complete graph
    order: str = "awc"
    accum_warmup: int = 0  # accum = 1 until then
    beta1: float = 0.9
    beta2: float = 0.98
    embedding_scale: float = 1.0  # rate of the embeddings relative to the rest
    workers: int = 4
    steps: int = 2000
    batch: int = 2
    block: int = 64
    layers: int = 4
    width: int = 128
    weight_decay: float = 0.1
    warmup: int = 100

    @property
    def name(self) -> str:
        """A file name that differs wherever a setting does."""
        return "-".join(f"{v:g}" if isinstance(v, float) else str(v) for v in asdict(self).values())


def load(dataset: str | None) -> TextData:
    """The text, under a BPE of 2,048 made from it; cached by the data room."""
    return load_text(dataset, f"bpe:{VOCABULARY}")


def rate(run: Run, step: int) -> float:
    """Linear warm-up, then a cosine to a tenth."""
    if step < run.warmup:
        return run.lr * (step + 1) / run.warmup
    done = (step - run.warmup) / max(1, run.steps - run.warmup)
    return run.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def groups(params: dict[str, nn.Parameter], dims: dict[str, int], run: Run) -> list[dict[str, Any]]:
    """No decay on norms and biases; ``dims`` are those of one worker's parameter."""
    vectors = [p for n, p in params.items() if dims[n] < 2]
    embeddings = [p for n, p in params.items() if "wte" in n or "wpe" in n]
    matrices = [p for n, p in params.items() if dims[n] >= 2 and not ("wte" in n or "wpe" in n)]
    return [
        {"params": matrices, "weight_decay": run.weight_decay, "scale": 1.0},
        {"params": embeddings, "weight_decay": run.weight_decay, "scale": run.embedding_scale},
        {"params": vectors, "weight_decay": 0.0, "scale": 1.0},
    ]


class Stack(nn.Module):
    """The workers' replicas as parameters ``[W, *shape]``."""

    def __init__(self, model: GPT2LMHeadModel, replicas: int) -> None:
        super().__init__()
        self.inner = [model]  # in a list: not a submodule, its own parameters are never trained
        self.names = [n for n, _ in model.named_parameters()]
        self.rows = nn.ParameterList(
            p.detach().expand(replicas, *p.shape).clone() for _, p in model.named_parameters()
        )

    def losses(self, ids: Tensor) -> list[Tensor]:
        """Each replica's loss on its own batch ``ids[w]``."""
        split = [p.unbind(0) for p in self.rows]
        return [
            self._loss({n: s[w] for n, s in zip(self.names, split, strict=True)}, ids[w])
            for w in range(len(ids))
        ]

    def _loss(self, params: dict[str, Tensor], ids: Tensor) -> Tensor:
        return functional_call(self.inner[0], params, kwargs={"input_ids": ids, "labels": ids}).loss


def model_for(run: Run) -> GPT2LMHeadModel:
    """One worker's model, with the weights that the seed gives."""
    torch.manual_seed(run.seed)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=run.block,
        n_embd=run.width, n_layer=run.layers, n_head=run.width // 32,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def optimizer_for(run: Run, stack: Stack) -> torch.optim.Optimizer:
    """The local optimizer, decentralized where the method is."""
    named = dict(zip(stack.names, stack.rows, strict=True))
    grouped = groups(named, {n: p.dim() - 1 for n, p in named.items()}, run)
    if run.method == "allreduce":
        return torch.optim.AdamW(grouped, lr=run.lr, betas=(run.beta1, run.beta2))
    topology = topologies.build(run.topology, run.workers)
    if run.complete_steps:
        topology = topologies.then(topologies.build("complete", run.workers), run.complete_steps, topology)
    local: torch.optim.Optimizer
    if run.method == "dadamw":
        local = torch.optim.AdamW(grouped, lr=run.lr, betas=(run.beta1, run.beta2))
    else:
        local = AccumAdamW(
            grouped, lr=run.lr, betas=(run.beta1, run.beta2), accum=run.accum, horizon=run.horizon
        )
    return decentralize(
        local,
        topology,
        order=run.order,
        averaging=run.averaging,
        model=stack,
        transport=Memory(run.workers),
    )


def train(run: Run, data: TextData, position: int) -> dict[str, Any]:
    """One run from beginning to end."""
    replicas = 1 if run.method == "allreduce" else run.workers
    stack = Stack(model_for(run), replicas)
    optimizer = optimizer_for(run, stack)
    part = {"workers": run.workers, "seed": run.seed}
    shards = [data.batches(run.block, run.batch, worker=w, **part) for w in range(run.workers)]
    held_out = data.validation(run.block, 64, limit=CONTEXTS)
    curve: list[dict[str, float]] = []
    recent: list[float] = []
    began = time.perf_counter()
    bar = tqdm(
        range(run.steps),
        desc=f"{run.method} {run.topology} {run.lr:g}",
        position=position,
        leave=False,
        mininterval=5,
    )
    for step in bar:
        for group in optimizer.param_groups:
            group["lr"] = rate(run, step) * group["scale"]
            if "accum" in group:
                group["accum"] = 1 if step < run.accum_warmup else run.accum
        ids = torch.stack([next(shard) for shard in shards])  # [workers, batch, block]
        losses = stack.losses(ids.reshape(replicas, -1, run.block) if replicas == 1 else ids)
        torch.stack(losses).sum().backward()
        clip(stack)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(float(torch.stack(losses).detach().mean()))
        if step + 1 in (run.steps // 2, run.steps * 9 // 10, run.steps):
            curve.append(
                {"step": step + 1, "train_loss": mean(recent), "val_loss": evaluate(stack, held_out)}
            )
            recent = []
            bar.set_postfix(val=curve[-1]["val_loss"])
    distance = 0.0 if replicas == 1 else gossip(optimizer).distance()
    return {
        **asdict(run),
        "val_loss": curve[-1]["val_loss"],
        "consensus_distance": distance,
        "sent_bytes": None if replicas == 1 else gossip(optimizer).sent_bytes,
        "tokens": run.steps * run.workers * run.batch * run.block,
        "seconds": time.perf_counter() - began,
        "curve": curve,
    }


@torch.no_grad()
def clip(stack: Stack) -> None:
    """Each replica's gradient to a norm of at most 1."""
    grads = [p.grad for p in stack.rows if p.grad is not None]
    squared = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0)
    scale = (1.0 / (squared.sqrt() + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(scale.view(-1, *[1] * (g.dim() - 1)))


@torch.no_grad()
def evaluate(stack: Stack, held_out: list[Tensor]) -> float:
    """Validation loss of the mean over the workers."""
    with averaged(stack):
        losses = [float(stack.losses(part[None])[0]) * len(part) for part in held_out]
    return sum(losses) / sum(map(len, held_out))


def expand(plan: list[dict[str, Any]]) -> list[Run]:
    """The runs of a plan, lists multiplied out."""
    runs = []
    for row in plan:
        keys = list(row)
        values = [v if isinstance(v, list) else [v] for v in row.values()]
        for combination in itertools.product(*values):
            setting = dict(zip(keys, combination, strict=True))
            runs.append(Run(**{**setting, "lr": float(setting["lr"])}))
    return list(dict.fromkeys(runs))


def work(job: tuple[int, Run, Path, str | None]) -> None:
    """One run in a process of its own; its file is written aside and renamed."""
    position, run, folder, dataset = job
    torch.set_num_threads(1)
    result = train(run, load(dataset), position % 2)
    target = folder / f"{run.name}.json"
    target.with_suffix(".part").write_text(json.dumps(result))
    target.with_suffix(".part").rename(target)


def show(folder: Path) -> None:
    """One row for each setting, columns for what differs: mean and standard deviation over the seeds."""
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    settings = [f.name for f in fields(Run) if f.name != "seed"]
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        rows.setdefault(tuple(found.get(name, getattr(Run, name, "")) for name in settings), []).append(found)
    varied = [k for k in range(len(settings)) if len({key[k] for key in rows}) > 1]
    table = Table(*(settings[k] for k in varied), "val loss", "seeds", "last tenth", "sent, MB")
    for key, found in sorted(rows.items(), key=lambda row: str(row[0])):
        losses = [f["val_loss"] for f in found]
        spread = f" ± {stdev(losses):.4f}" if len(losses) > 1 else ""
        tail = mean(1 - f["curve"][-1]["val_loss"] / f["curve"][-2]["val_loss"] for f in found)
        shown = [str(key[k]) for k in varied]
        sent = [f["sent_bytes"] / 1e6 for f in found if f.get("sent_bytes")]
        megabytes = f"{mean(sent):.0f}" if sent else ""
        table.add_row(*shown, f"{mean(losses):.4f}{spread}", str(len(losses)), f"{tail:.2%}", megabytes)
    Console(width=180).print(table)


def main() -> None:
    (args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if args.plan:
        load(args.dataset)  # once, before several would
        runs = expand(yaml.safe_load(Path(args.plan).read_text()))
        runs = [run for run in runs if not (folder / f"{run.name}.json").exists()]
        jobs = [(k, run, folder, args.dataset) for k, run in enumerate(runs)]
        with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
            for _ in tqdm(pool.imap_unordered(work, jobs), total=len(jobs), desc="runs", position=3):
                pass
    show(folder)


if __name__ == "__main__":
    main()
