"""Fine-tune a translation model, or train the paper's transformer, with gossip or with All-Reduce.

    accelerate launch --config_file accelerate_configs/decentralized_aer.yaml \\
        scripts/finetune_translation.py --source_lang en --target_lang de --optim accumadam \\
        --train_file train.jsonl --validation_file valid.jsonl --test_file test.jsonl --output_dir runs/en-de
    ... --dataset_name wmt14 --dataset_config_name de-en --recipe scripts/recipes/transformer_base_paper.yaml
    ... --model Helsinki-NLP/opus-mt-en-de --learning_rate 2e-5      # instead of a model from scratch

All flags of transformers' Seq2SeqTrainingArguments and of our own are taken too; --topology allreduce is the
baseline. Writes checkpoints, the consensus model, predictions.txt (one sentence a line; sacrebleu scores it
against references.txt), and summary.json into --output_dir.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, set_seed

from hf_decentral.errors.ending import no_traceback
from hf_decentral.errors.metrics import no_wordnet
from hf_decentral.errors.translation import nothing_to_average
from hf_decentral.integrations import recipe
from hf_decentral.integrations.recipe import option
from hf_decentral.metrics import bleu, find_wordnet, meteor
from hf_decentral.trainer import DecentralizedSeq2SeqTrainer, DecentralizedSeq2SeqTrainingArguments
from hf_decentral.trainer.saving import checkpoints
from hf_decentral.trainer.timing import StepTimer
from hf_decentral.translation import (
    TokenBatches,
    average_checkpoints,
    encode,
    language_id,
    lengths,
    load_model,
    load_pairs,
    load_vocabulary,
    transformer,
)
from hf_decentral.translation.pairs import clean


@dataclass
class Settings(DecentralizedSeq2SeqTrainingArguments):
    """Every flag may also stand in the --recipe; a flag that is given wins over the recipe."""

    recipe: str | None = option("YAML file with defaults for all other flags.")
    source_lang: str = option("Language of the source, as the data names it.", "en")
    target_lang: str = option("Language of the target; it also chooses BLEU's tokenizer.", "de")
    train_file: str | None = option(
        "jsonl(.gz) of pairs: {'translation': {'en': ..., 'de': ...}} or two columns."
    )
    validation_file: str | None = option("The same, to validate on.")
    test_file: str | None = option("The same, to translate and score at the end.")
    dataset_name: str | None = option("Dataset on the hub, or a folder; default: a small set, included.")
    dataset_config_name: str | None = option("Its configuration, as de-en of wmt14.")
    source_column: str | None = option("Column of the source, where there is no column translation.")
    target_column: str | None = option("Column of the target.")
    max_samples: int | None = option("Most pairs of each split.")
    model: str | None = option("Checkpoint to fine-tune: Marian, T5, mBART ... by name or folder.")
    size: str = option("Transformer to train from scratch: tiny, small, base or big.", "small")
    dropout: float | None = option("Dropout of that transformer; default: that of its size.")
    vocabulary_size: int = option("Tokens of the BPE that both languages share.", 32_000)
    prefix: str = option("Put before each source, as T5 wants it.", "")
    max_source_length: int = option("Tokens of a source; what is longer is cut.", 128)
    max_target_length: int = option("Tokens of a target; what is longer is cut.", 128)
    max_tokens: int = option(
        "Tokens of a step, over all workers, of the longer side, padding included.", 25_000
    )
    length_penalty: float = option("Of beam search; above 0 favours long translations.", 0.6)
    average_last: int = option("Average the weights of so many last checkpoints before translating.", 0)
    wordnet: str | None = option("Folder or zip of WordNet, for METEOR; default: where nltk looks.")
    cache_dir: str | None = option("Where vocabularies are kept; default: in the Hugging Face cache.")
    # Other defaults than those of transformers: the paper's.
    learning_rate: float = option("Highest learning rate.", 7e-4)
    lr_scheduler_type: str = option("Schedule of the learning rate.", "inverse_sqrt")
    warmup_steps: float = option("Steps (or share of them, below 1) in which the rate rises.", 4000)
    label_smoothing_factor: float = option("Label smoothing; the validation loss is without.", 0.1)
    adam_epsilon: float = option("Epsilon of Adam.", 1e-9)
    generation_num_beams: int = option("Beams of the search.", 4)


class Loader(DataLoader[Any]):
    """A loader that tells its sampler the epoch, as the Trainer expects."""

    def set_epoch(self, epoch: int) -> None:
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


class TranslationTrainer(DecentralizedSeq2SeqTrainer):
    """Batches by tokens, this worker's own; validation without label smoothing, each row counted once."""

    def batches(self) -> TokenBatches:
        s = self.args
        tokens = s.max_tokens // (s.world_size * s.gradient_accumulation_steps)
        sides = lengths(self.train_dataset)
        return TokenBatches(
            sides, max(1, tokens), worker=s.process_index, workers=s.world_size, seed=s.data_seed or s.seed
        )

    def get_train_dataloader(self) -> Loader:
        return Loader(
            self.train_dataset,
            batch_sampler=self.batches(),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type == "cuda",
        )

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        smoother, self.label_smoother = self.label_smoother, None
        # Seq2SeqTrainer would count rows twice that fill the last batch: BLEU would depend on the workers.
        self.gather_function = self.accelerator.gather_for_metrics
        try:
            return super().evaluation_loop(*args, **kwargs)
        finally:
            self.label_smoother = smoother

    def target_tokens(self) -> int:
        """Target tokens that all workers have trained on up to now, those after a resume included."""
        batches, targets, total = self.batches(), lengths(self.train_dataset)[:, 1], 0
        left, epoch = self.state.global_step * self.args.gradient_accumulation_steps, 0
        while left > 0:
            batches.set_epoch(epoch)
            total += sum(int(targets[rows].sum()) for rows in islice(batches, left))
            left, epoch = left - len(batches), epoch + 1
        return sum(self.plugin.gather(total))


def check_ahead(s: Settings) -> None:
    """Refuse before training what could not be averaged or scored after it."""
    if s.average_last and s.save_strategy == "no":
        raise nothing_to_average()
    bleu(["-"], ["-"], target_lang=s.target_lang)  # whether sacrebleu and what the language needs are here
    if find_wordnet(s.wordnet) is None and s.wordnet is not None:
        raise no_wordnet([s.wordnet])


def begin(s: Settings) -> tuple[TranslationTrainer, dict[str, Any], StepTimer]:
    """The Trainer with its model and data, the pairs as text, and a stopwatch."""
    set_seed(s.seed)
    pairs = load_pairs(
        s.source_lang, s.target_lang, train=s.train_file, validation=s.validation_file, test=s.test_file,
        dataset_name=s.dataset_name, dataset_config=s.dataset_config_name,
        source_column=s.source_column, target_column=s.target_column, limit=s.max_samples,
    )  # fmt: skip
    if len(pairs) > 1:  # a validation or a test split
        check_ahead(s)
    if s.model is None:
        tokenizer = load_vocabulary(pairs["train"], s.vocabulary_size, s.cache_dir)
        positions = max(s.max_source_length, s.max_target_length)
        model = transformer(s.size, tokenizer, dropout=s.dropout, max_positions=positions)
    else:
        model, tokenizer = load_model(s.model)
    longest = getattr(model.config, "max_position_embeddings", None) or math.inf
    limits = {
        f"max_{side}_length": min(getattr(s, f"max_{side}_length"), longest) for side in ("source", "target")
    }
    languages = {"source_lang": s.source_lang, "target_lang": s.target_lang, "prefix": s.prefix}
    encoded = {name: encode(split, tokenizer, **limits, **languages) for name, split in pairs.items()}
    if s.generation_num_beams > 1:
        beams = {"num_beams": s.generation_num_beams, "length_penalty": s.length_penalty}
        model.generation_config.update(**beams, early_stopping=True)
    language = language_id(tokenizer, s.target_lang)
    if language is not None:
        model.generation_config.forced_bos_token_id = language
    s.generation_max_length = s.generation_max_length or int(limits["max_target_length"])
    trainer = TranslationTrainer(
        model,
        s,
        DataCollatorForSeq2Seq(tokenizer, model=model),
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("validation"),
        processing_class=tokenizer,
    )
    # These models' own loss is the mean over a batch's tokens, whatever count they are told; having told one,
    # the stock Trainer would multiply it by the number of workers.
    trainer.model_accepts_loss_kwargs = False
    timer = StepTimer(trainer.plugin)
    trainer.add_callback(timer)
    return trainer, {name: (pairs[name], encoded[name]) for name in pairs}, timer


def use_last(trainer: TranslationTrainer, number: int) -> None:
    """Put the mean of the last checkpoints' weights into the model."""
    found = checkpoints(Path(trainer.args.output_dir))
    # A higher step than the last one is of another run in the same folder.
    folders = [folder for step, folder in found.items() if step <= trainer.state.global_step]
    trainer.model.load_state_dict(average_checkpoints(folders[-number:]), strict=False)


def translate(trainer: TranslationTrainer, encoded: Any) -> list[str]:
    """The consensus' translations, the same on every worker."""
    trainer.args.predict_with_generate = True
    tokens = trainer.predict(encoded).predictions
    tokenizer = trainer.processing_class
    tokens = np.where(tokens < 0, tokenizer.pad_token_id, tokens)  # -100 is how the Trainer pads
    return [clean(text) for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]


def score(s: Settings, predictions: list[str], references: list[str]) -> dict[str, Any]:
    """BLEU and, where WordNet is found, METEOR."""
    scored = bleu(predictions, references, target_lang=s.target_lang)
    found: dict[str, Any] = {"bleu": scored.score, "bleu_signature": scored.signature, "meteor": None}
    if find_wordnet(s.wordnet) is None:
        print("METEOR is left out: no WordNet found; give --wordnet, or set NLTK_DATA")
    else:
        found["meteor"] = meteor(predictions, references, wordnet=s.wordnet)
    return found


def finish(trainer: TranslationTrainer, data: dict[str, Any], timer: StepTimer) -> None:
    """Validate, translate, and write everything; all workers take part, worker 0 writes."""
    s, plugin = trainer.args, trainer.plugin
    tokens, steps, meter = trainer.target_tokens(), trainer.state.global_step, timer.meter
    about: dict[str, Any] = {
        "topology": plugin.topology,
        "optim": str(getattr(s.optim, "value", s.optim)),
        "workers": plugin.workers,
        "steps": steps,
        "tokens": tokens,
        "step_seconds": meter.step_seconds,
        **meter.totals(),
        "tokens_per_second": tokens / max(1, steps) * meter.steps_per_second,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "settings": s.to_dict(),  # tokens of the hub are hidden
    }
    if s.average_last:
        use_last(trainer, s.average_last)
    if "validation" in data:
        s.predict_with_generate = False
        about["val_loss"] = trainer.evaluate()["eval_loss"]
    trainer.save_model()
    text, encoded = data.get("test", data.get("validation", (None, None)))
    predictions = translate(trainer, encoded) if encoded is not None else []
    if not trainer.is_world_process_zero():
        return
    folder = Path(s.output_dir)
    if predictions:
        references = [clean(each) for each in text["target"]]
        for name, lines in (("predictions.txt", predictions), ("references.txt", references)):
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        about |= score(s, predictions, references)
    (folder / "summary.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    shown = ("bleu", "bleu_signature", "meteor", "val_loss", "tokens", "step_seconds")
    print("\n".join(f"{name}: {about[name]}" for name in shown if name in about))


def main(arguments: list[str]) -> None:
    s = recipe.parse(Settings, arguments, "Train a translation model, with gossip or with All-Reduce.")
    counts = ("max_samples", "max_tokens", "vocabulary_size", "max_source_length", "max_target_length")
    recipe.at_least(s, 1, counts)
    recipe.at_least(s, 0, ("average_last",))
    logging.basicConfig(format="%(message)s")
    logging.getLogger("hf_decentral").setLevel(logging.INFO)  # worker 0 tells how the workers average
    if s.process_index > 0:  # all read the same pairs: one tells of them
        logging.getLogger("hf_decentral.translation").setLevel(logging.ERROR)
        datasets.disable_progress_bars()
    trainer, data, timer = begin(s)
    trainer.train(resume_from_checkpoint=s.resume_from_checkpoint)
    finish(trainer, data, timer)
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()  # no worker leaves while another still needs its connections


if __name__ == "__main__":
    with no_traceback():
        main(sys.argv[1:])
