"""Small runs of real Trainers, for the tests to make in one or several processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from hf_decentral.trainer import DecentralizedTrainer, DecentralizedTrainingArguments

VOCABULARY, LENGTH = 32, 8


class Rows(Dataset):
    """Rows of counting tokens; some end early, so that workers hold different numbers of tokens."""

    def __init__(self, rows: int = 24) -> None:
        generator = torch.Generator().manual_seed(3)
        first = torch.randint(0, VOCABULARY, (rows, 1), generator=generator)
        self.ids = (first + torch.arange(LENGTH)) % VOCABULARY
        self.labels = self.ids.clone()
        ends = torch.randint(4, LENGTH + 1, (rows,), generator=generator)
        for row, end in enumerate(ends.tolist()):
            self.labels[row, end:] = -100

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[row], "labels": self.labels[row]}


def model(dropout: float = 0.0) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    drop = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    sizes = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 16, "n_layer": 1, "n_head": 2}
    made = GPT2LMHeadModel(GPT2Config(**sizes, **drop, bos_token_id=0, eos_token_id=0))
    # What transformers falls back to; but without a name the Trainer counts one token too many in each row.
    made.loss_type = "ForCausalLM"
    return made


def settings(folder: Path | str, **changed: Any) -> dict[str, Any]:
    """Arguments of a short run on the CPU."""
    world = os.environ.get("WORLD_SIZE", "1")
    for name, value in (("LOCAL_WORLD_SIZE", world), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")):
        os.environ.setdefault(name, value)
    return {
        "output_dir": str(folder), "max_steps": 6, "per_device_train_batch_size": 2, "learning_rate": 1e-2,
        "report_to": "none", "disable_tqdm": True, "logging_steps": 2, "save_strategy": "no",
        "dataloader_pin_memory": False, "use_cpu": True, "seed": 7, **changed,
    }  # fmt: skip


def trainer(folder: Path | str, **changed: Any) -> DecentralizedTrainer:
    """Ours; ``dropout``, ``callbacks``, ``train_dataset`` go where they belong, the rest to the arguments."""
    own = {k: changed.pop(k) for k in ("callbacks", "train_dataset", "compute_metrics") if k in changed}
    dropout = changed.pop("dropout", 0.0)
    args = DecentralizedTrainingArguments(**settings(folder, **changed))
    return DecentralizedTrainer(
        model(dropout), args, eval_dataset=Rows(9), **{"train_dataset": Rows(), **own}
    )


def stock(folder: Path | str, **changed: Any) -> Trainer:
    """The stock Trainer with the same model and data."""
    args = TrainingArguments(**settings(folder, **changed))
    return Trainer(model(), args, train_dataset=Rows(), eval_dataset=Rows(9))


def weights(module: torch.nn.Module) -> Tensor:
    """All parameters in one vector."""
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


class Replicas(TrainerCallback):
    """Keeps this worker's parameters after every step."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.seen.append(weights(model))
