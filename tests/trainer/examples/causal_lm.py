"""A causal language model trained as the common Trainer scripts do it: it imports from transformers only."""

import logging
import sys
from dataclasses import dataclass, field

import datasets
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    width: int = field(default=16, metadata={"help": "Width of the model."})


@dataclass
class DataArguments:
    rows: int = field(default=24, metadata={"help": "Rows of the training data."})


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(handlers=[logging.StreamHandler(sys.stdout)])
    set_seed(training_args.seed)

    ids = [[(start + k) % 32 for k in range(8)] for start in range(data_args.rows)]
    data = datasets.Dataset.from_dict({"input_ids": ids, "labels": ids, "text": ["unused"] * len(ids)})
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=32, n_positions=8, n_embd=model_args.width, n_layer=1, n_head=2)
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=data if training_args.do_train else None,
        eval_dataset=data.select(range(9)) if training_args.do_eval else None,
    )
    if training_args.do_train:
        checkpoint = training_args.resume_from_checkpoint or get_last_checkpoint(training_args.output_dir)
        result = trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_model()
        trainer.log_metrics("train", result.metrics)
        trainer.save_metrics("train", result.metrics)
        trainer.save_state()
    if training_args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    wrapped = type(trainer.model_wrapped).__name__
    total = sum(p.double().sum() for p in trainer.model.parameters())
    same = transformers.Trainer is Trainer
    print(f"{type(trainer).__name__} {same} {wrapped} {torch.round(total, decimals=9)}")


if __name__ == "__main__":
    main()
