"""Pretrain GPT-2 with workers that gossip, or with All-Reduce: a plain Accelerate loop to copy from.

    accelerate launch --config_file accelerate_configs/decentralized_aer.yaml scripts/pretrain_gpt2.py \\
        --recipe scripts/recipes/gpt2_tiny.yaml --dataset my/texts --output_dir runs/mine
    torchrun --nproc-per-node 4 scripts/pretrain_gpt2.py --topology allreduce --max_steps 500

Writes metrics.jsonl, summary.json, checkpoints/ and model/ (the consensus; loads with from_pretrained) into
--output_dir, which all hosts share. What is special about gossip here is the three calls marked with (*).
"""

from __future__ import annotations

import logging
import statistics
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, ProjectConfiguration, set_seed
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.optimization import get_cosine_with_min_lr_schedule_with_warmup

from hf_decentral import DecentralizedPlugin
from hf_decentral.data import load_text
from hf_decentral.errors import out_of_range
from hf_decentral.errors.ending import no_traceback
from hf_decentral.integrations import recipe
from hf_decentral.integrations.meter import Meter
from hf_decentral.integrations.recipe import option
from hf_decentral.integrations.run_folder import RunFolder, hyperparameters


@dataclass
class Settings:
    """Every flag may also stand in the --recipe; a flag that is given wins over the recipe."""

    recipe: str | None = option("YAML file with defaults for all other flags.")
    dataset: str | None = option("File, folder, or hub name (NAME:CONFIG); default: a small text, included.")
    text_column: str = option("Column, or JSON key, that holds the text.", "text")
    streaming: bool = option("Tokenize while training, and keep no tokens on disk.", False)
    validation_fraction: float = option("Share held out where the dataset has no validation split.", 0.05)
    tokenizer: str = option("Hub name or folder, or bpe:SIZE to train one on the text.", "bpe:2048")
    cache_dir: str | None = option("Where tokens are kept; default: in the Hugging Face cache.")
    topology: str | None = option("allreduce, aer, ring, ..., auto; default: as launched, else aer.")
    optim: str = option("accumadamw, accumadam, adamw, adam, sgd, muon.", "accumadamw")
    accum: int | None = option("Steps for which AccumAdam's moments wait; default: as launched, else 4.")
    horizon: str | None = option("windows (as published) or steps: what AccumAdam's betas count.")
    comm_timeout: float | None = option("Seconds to wait for another worker; default: as launched, else 600.")
    n_layer: int = option("Layers.", 4)
    n_head: int = option("Heads.", 4)
    n_embd: int = option("Width.", 128)
    block_size: int = option("Tokens in a context.", 64)
    vocab_size: int | None = option("Rows of the embedding; default: the tokenizer's size.")
    bias: bool = option("Train biases. Without, they are zero and stay zero.", True)
    dropout: float = option("Dropout everywhere.", 0.0)
    max_steps: int = option("Optimizer steps.", 200)
    batch_size: int = option("Contexts in a micro-batch of one worker.", 8)
    gradient_accumulation_steps: int = option("Micro-batches in a step.", 1)
    lr: float = option("Highest learning rate.", 1e-3)
    min_lr: float | None = option("Last learning rate; default: a tenth of --lr.")
    warmup_steps: int = option("Steps in which the rate rises to --lr.", 20)
    embedding_scale: float | None = option("Rate of the embeddings as a multiple of --lr; try the workers.")
    weight_decay: float = option("Decay of matrices; norms and biases have none.", 0.1)
    beta1: float = option("First beta of Adam.", 0.9)
    beta2: float = option("Second beta of Adam.", 0.98)
    clip: float = option("Largest norm of a worker's gradient; 0: unlimited.", 1.0)
    mixed_precision: str | None = option("no, bf16 or fp16; default: as launched.")
    compile: bool = option("Compile the model with torch.compile.", False)
    seed: int = option("Seed of the weights, of dropout and of the order of the data.", 0)
    output_dir: str = option("Where everything is written.", "runs/pretrain_gpt2")
    log_every: int = option("Steps between lines of metrics.jsonl.", 10)
    eval_every: int = option("Steps between validations of the consensus; 0: only at the end.", 100)
    eval_contexts: int = option("Validation contexts, over all workers; 0: all there are.", 512)
    save_every: int = option("Steps between checkpoints; 0: none.", 0)
    resume: bool = option("Go on from the last complete checkpoint in --output_dir.", False)
    report_to: str = option("Accelerate trackers, by commas: tensorboard, wandb; or none.", "none")


def build_model(s: Settings, tokenizer: Any) -> GPT2LMHeadModel:
    """GPT-2 of transformers, with the weights that the seed gives."""
    vocabulary = len(tokenizer) if s.vocab_size is None else s.vocab_size
    if vocabulary < len(tokenizer):
        raise out_of_range("--vocab_size", vocabulary, f"{len(tokenizer)} (tokenizer) or more", "raise it")
    if s.n_embd % s.n_head:
        raise out_of_range("--n_embd", s.n_embd, f"a multiple of --n_head {s.n_head}", "change one of them")
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=s.block_size, n_layer=s.n_layer, n_head=s.n_head, n_embd=s.n_embd,
        resid_pdrop=s.dropout, embd_pdrop=s.dropout, attn_pdrop=s.dropout,
        bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # what transformers falls back to, with a warning
    # GPT-2 in transformers cannot be built without biases. They begin at zero; frozen, they stay there:
    # the same function and the same updates as without them, and from_pretrained can load the model.
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(s.bias or not name.endswith(".bias"))
    return model


SIZES = ("n_layer", "n_head", "n_embd", "block_size")
TEXT = ("dataset", "text_column", "tokenizer", "streaming", "validation_fraction")
COUNTS = (*SIZES, "max_steps", "batch_size", "gradient_accumulation_steps", "log_every")  # 1 or more
FIXED = (*SIZES, *TEXT, "vocab_size", "bias", "optim", "seed")  # when a run goes on from a checkpoint


@dataclass
class Run:
    """What a training run is made of, and where it stands."""

    settings: Settings
    accelerator: Accelerator
    plugin: DecentralizedPlugin
    folder: RunFolder
    model: torch.nn.Module
    optimizer: Any
    scheduler: Any
    batches: Any  # this worker's endless batches, [batch_size, block_size] each
    held_out: list[torch.Tensor]  # this worker's part of the validation contexts
    tokenizer: Any
    meter: Meter
    step: int = 0

    def state_dict(self) -> dict[str, Any]:
        """What each worker saves besides its replica, its optimizer and its scheduler."""
        return {"step": self.step, "batches": self.batches.state_dict(), **self.meter.totals()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.meter.resume(state)
        self.batches.load_state_dict(state["batches"])


def begin(s: Settings) -> Run:
    """Make everything, in the order that Accelerate needs."""
    trackers = [] if s.report_to == "none" else s.report_to.split(",")
    accelerator = Accelerator(
        cpu=not torch.accelerator.is_available(),  # must be told, or N processes without GPU train alone
        mixed_precision=s.mixed_precision,
        gradient_accumulation_steps=s.gradient_accumulation_steps,
        dynamo_backend="inductor" if s.compile else None,
        step_scheduler_with_optimizer=False,  # else a prepared scheduler steps num_processes times a step
        log_with=trackers or None,
        project_config=ProjectConfiguration(project_dir=s.output_dir),
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=s.comm_timeout or 600))],
    )
    logging.basicConfig(format="%(message)s")  # worker 0 tells how the workers average, and who said so
    logging.getLogger("hf_decentral").setLevel(logging.INFO)
    plugin = DecentralizedPlugin(  # (*)
        topology=s.topology, accum=s.accum, horizon=s.horizon, comm_timeout=s.comm_timeout
    ).attach(accelerator)
    folder = RunFolder(plugin, s.output_dir, asdict(s), resume=s.resume, fixed=FIXED)
    set_seed(s.seed)
    data = load_text(
        s.dataset, s.tokenizer, text_column=s.text_column, validation_fraction=s.validation_fraction,
        streaming=s.streaming, cache_dir=s.cache_dir,
    )  # fmt: skip
    part = {"worker": accelerator.process_index, "workers": accelerator.num_processes}
    batches = data.batches(s.block_size, s.batch_size, **part, seed=s.seed)
    held_out = data.validation(s.block_size, s.batch_size, **part, limit=s.eval_contexts)
    model = build_model(s, data.tokenizer)
    rates = {"lr": s.lr, "weight_decay": s.weight_decay, "embedding_scale": s.embedding_scale}
    betas = (s.beta1, s.beta2) if "ada" in s.optim else None  # of the Adam family only
    optimizer = plugin.optimizer(model, s.optim, **rates, betas=betas)  # (*)
    warmup, min_lr = min(s.warmup_steps, s.max_steps // 2), s.lr / 10 if s.min_lr is None else s.min_lr
    scheduler = get_cosine_with_min_lr_schedule_with_warmup(optimizer, warmup, s.max_steps, min_lr=min_lr)
    # The batches are not prepared: each worker reads its own part already.
    prepared = accelerator.prepare(model, optimizer, scheduler)
    accelerator.init_trackers("logs", config={k: v for k, v in asdict(s).items() if v is not None})
    return Run(s, accelerator, plugin, folder, *prepared, batches, held_out, data.tokenizer, Meter(plugin))


def train_step(run: Run) -> torch.Tensor:
    """One optimizer step; gives back the mean loss of its micro-batches."""
    accelerator, s = run.accelerator, run.settings
    loss_sum = torch.zeros((), device=accelerator.device)
    for _ in range(s.gradient_accumulation_steps):
        with accelerator.accumulate(run.model):
            tokens = next(run.batches).to(accelerator.device)
            accelerator.backward(loss := run.model(input_ids=tokens, labels=tokens).loss)
            if accelerator.sync_gradients and s.clip > 0:
                accelerator.clip_grad_norm_(run.model.parameters(), s.clip)
            run.optimizer.step()
            if accelerator.sync_gradients:
                run.scheduler.step()
            run.optimizer.zero_grad()
        loss_sum += loss.detach()
    return loss_sum / s.gradient_accumulation_steps


def train(run: Run) -> dict[str, Any]:
    """Train up to --max_steps; gives back the last line of metrics.jsonl."""
    s, accelerator = run.settings, run.accelerator
    run.folder.begin_log(run.step)
    hidden = None if accelerator.is_main_process else True  # None: hidden where nobody looks, as in a file
    bar = tqdm(total=s.max_steps, initial=run.step, disable=hidden, unit="step")
    losses: list[torch.Tensor] = []
    line: dict[str, Any] = {}
    run.meter.start(run.step)
    for step in range(run.step + 1, s.max_steps + 1):
        losses.append(train_step(run))
        run.step = step
        bar.update()
        evaluated = step == s.max_steps or (s.eval_every > 0 and step % s.eval_every == 0)
        logged, saved = evaluated or step % s.log_every == 0, s.save_every > 0 and step % s.save_every == 0
        if not (logged or saved):
            continue
        run.meter.stop(step)
        if logged:
            line = measure(run, torch.stack(losses).mean(), evaluated)
            run.folder.log(line)
            bar.set_postfix({name: line[name] for name in line if name.endswith("loss")}, refresh=False)
            losses.clear()
        if saved:
            run.folder.save(step)
        run.meter.start(step)
    bar.close()
    accelerator.wait_for_everyone()
    return line


def measure(run: Run, loss: torch.Tensor, evaluated: bool) -> dict[str, Any]:
    """A line of metrics.jsonl; every worker takes part, since some of it is a sum over workers."""
    s, accelerator, plugin = run.settings, run.accelerator, run.plugin
    step_tokens = s.batch_size * s.block_size * s.gradient_accumulation_steps * accelerator.num_processes
    line = {
        "step": run.step,
        "tokens": run.step * step_tokens,
        **run.meter.totals(),
        "train_loss_worker": loss.item(),
        "train_loss": statistics.fmean(plugin.gather(loss.item())),
        "learning_rate": run.scheduler.get_last_lr()[0],
        "tokens_per_second": step_tokens * run.meter.steps_per_second,
        "consensus_distance": plugin.distance(),
    }
    if evaluated:
        with plugin.averaged(run.model):  # (*)
            line["val_loss"] = evaluate(run)
    return line


def evaluate(run: Run) -> float:
    """Mean loss over the validation contexts of all workers, each context weighed alike."""
    accelerator = run.accelerator
    model = accelerator.unwrap_model(run.model)  # DDP would wait for workers that have fewer batches
    model.eval()
    total = torch.zeros(2, dtype=torch.float32, device=accelerator.device)  # sum of losses, contexts
    with torch.no_grad(), accelerator.autocast():
        for batch in run.held_out:
            tokens = batch.to(accelerator.device)
            loss = model(input_ids=tokens, labels=tokens).loss.float()
            total += torch.stack([loss * len(tokens), torch.ones_like(loss) * len(tokens)])
    model.train()
    sums, contexts = zip(*run.plugin.gather(total.tolist()), strict=True)
    return float(sum(sums) / sum(contexts))


def finish(run: Run, line: dict[str, Any]) -> None:
    """Save the consensus as a model of transformers, and write summary.json."""
    accelerator, folder = run.accelerator, run.folder.output / "model"
    weights = accelerator.get_state_dict(run.model)  # the consensus; every worker takes part
    if accelerator.is_main_process:
        accelerator.unwrap_model(run.model).save_pretrained(folder, state_dict=weights)
        run.tokenizer.save_pretrained(folder)
        about = line | {
            "topology": run.plugin.topology, "optim": run.settings.optim, "workers": run.plugin.workers,
            "steps": run.step, "step_seconds": run.meter.step_seconds,
            "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
            "settings": asdict(run.settings), "hyperparameters": hyperparameters(run.optimizer),
        }  # fmt: skip
        if line:  # else this run had nothing left to do
            run.folder.write("summary.json", about)
    accelerator.end_training()


def main(arguments: list[str]) -> None:
    settings = recipe.parse(Settings, arguments, "Pretrain GPT-2, with gossip or with All-Reduce.")
    recipe.at_least(settings, 1, COUNTS)
    recipe.at_least(settings, 0, ("warmup_steps", "eval_every", "eval_contexts", "save_every"))
    run = begin(settings)
    run.accelerator.register_for_checkpointing(run)
    set_seed(settings.seed, device_specific=True)  # the weights began alike, dropout differs between workers
    if settings.resume:
        run.folder.load(run.optimizer)
    finish(run, train(run))


if __name__ == "__main__":
    with no_traceback():
        main(sys.argv[1:])
