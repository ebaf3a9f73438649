"""What is overridden or called in transformers and Accelerate, as it was when it was read.

Some of it is private there, and may change in any release. Where a test fails after an upgrade: read the
function that the message names, see that what stands in its place here still fits, and put the new names in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import pytest
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from transformers import PreTrainedModel, Seq2SeqTrainer, Trainer, TrainingArguments
from transformers.trainer_callback import CallbackHandler, TrainerCallback, TrainerControl
from transformers.trainer_utils import has_length, sort_checkpoints

from hf_decentral.trainer.arguments import DecentralizedArguments
from hf_decentral.trainer.lockstep import _AGREED_AT, _FLAGS, AgreedCallbacks
from hf_decentral.trainer.trainers import Decentralized

PARAMETERS: dict[Callable[..., Any], list[str]] = {
    Trainer.create_accelerator_and_postprocess: ["self"],
    Trainer.get_optimizer_cls_and_kwargs: ["args", "model"],
    Trainer.create_optimizer: ["self", "model"],
    Trainer.set_initial_training_values: ["self", "args", "dataloader"],
    Trainer._init_training_state: [
        *("self", "max_steps", "num_update_steps_per_epoch", "num_train_epochs", "resume_from_checkpoint"),
        "trial",
    ],
    Trainer._prepare_for_training: ["self", "max_steps", "train_dataloader", "resume_from_checkpoint"],
    Trainer.get_batch_samples: ["self", "epoch_iterator", "num_batches", "device"],
    Trainer.evaluation_loop: [
        *("self", "dataloader", "description", "prediction_loss_only", "ignore_keys", "metric_key_prefix"),
    ],
    Trainer._finalize_training: ["self", "trial", "num_train_samples", "start_time"],
    Trainer._maybe_log_save_evaluate: [
        *("self", "tr_loss", "grad_norm", "model", "trial", "epoch", "ignore_keys_for_eval", "start_time"),
        "learning_rate",
    ],
    Trainer._evaluate: ["self", "trial", "ignore_keys_for_eval", "skip_scheduler"],
    Trainer.log: ["self", "logs", "start_time"],
    Trainer._save: ["self", "output_dir", "state_dict"],
    Trainer._save_optimizer_and_scheduler: ["self", "output_dir"],
    Trainer._save_rng_state: ["self", "output_dir"],
    Trainer._save_checkpoint: ["self", "model", "trial"],
    Trainer._get_output_dir: ["self", "trial"],
    Trainer.train: ["self", "resume_from_checkpoint", "trial", "ignore_keys_for_eval"],
    Trainer._load_optimizer_and_scheduler: ["self", "checkpoint"],
    Trainer._load_scaler: ["self", "checkpoint"],
    TrainingArguments.set_optimizer: [
        *("self", "name", "learning_rate", "weight_decay", "beta1", "beta2", "epsilon", "args"),
    ],
    TrainingArguments.__post_init__: ["self"],
    CallbackHandler.__init__: [
        *("self", "callbacks", "model", "processing_class", "optimizer", "lr_scheduler"),
    ],
    CallbackHandler.call_event: ["self", "event", "args", "state", "control", "kwargs"],
    Accelerator.prepare: ["self", "args", "device_placement"],
    Accelerator.prepare_model: ["self", "model", "device_placement", "evaluation_mode"],
    Accelerator.prepare_optimizer: ["self", "optimizer", "device_placement"],
    Accelerator.get_state_dict: ["self", "model", "unwrap"],
    Accelerator.save_model: ["self", "model", "save_directory", "max_shard_size", "safe_serialization"],
    Accelerator.save_state: ["self", "output_dir", "safe_serialization", "save_model_func_kwargs"],
    Accelerator.load_state: ["self", "input_dir", "load_kwargs", "load_model_func_kwargs"],
    Accelerator.join_uneven_inputs: ["self", "joinables", "even_batches"],
    Accelerator.unwrap_model: ["self", "model", "keep_fp32_wrapper", "keep_torch_compile"],
    Accelerator.gather_for_metrics: ["self", "input_data", "use_gather_object"],
    sort_checkpoints: ["output_dir", "checkpoint_prefix", "use_mtime", "best_model_checkpoint"],
    has_length: ["dataset"],
}

# What only a look at the source shows: the Trainer does this, in these words.
MENTIONS: dict[Any, tuple[str, ...]] = {
    Trainer._maybe_log_save_evaluate: (
        "self.control.should_log and self.state.global_step > self._globalstep_last_logged",
        "/ (self.state.global_step - self._globalstep_last_logged)",
        "self.log(logs, start_time)",
        "self._evaluate(",
        "self._save_checkpoint(model, trial)",
        "self.callback_handler.on_save(",
    ),
    Trainer._save_checkpoint: (
        "self.save_model(",
        "self._save_optimizer_and_scheduler(",
        "self._save_rng_state(",
        "rotate_checkpoints(",
        "self._get_output_dir(trial=trial)",
    ),
    Trainer.set_initial_training_values: ("num_train_epochs = sys.maxsize",),
    Trainer._run_epoch: ("self.state.epoch = epoch + (step + 1) / steps_in_epoch",),
    Trainer._get_num_items_in_batch: ("if self.args.average_tokens_across_devices:",),
    Trainer.compute_loss: ("self.args.average_tokens_across_devices",),
    Trainer.save_model: ("self._save(output_dir)",),
    Trainer.evaluate: ("self.evaluation_loop(",),
    Trainer.predict: ("self.evaluation_loop(",),
    Trainer.__init__: (
        "self.create_accelerator_and_postprocess()",
        "self.callback_handler = CallbackHandler(",
    ),
    Trainer._save: (
        "save_pretrained(output_dir, state_dict=state_dict, is_main_process=self.args.should_save)",
    ),
    PreTrainedModel.save_pretrained: ("self.should_save_on_this_rank(is_main_process)",),
    Seq2SeqTrainer.evaluate: ("self.gather_function = self.accelerator.gather",),
    Accelerator: tuple(
        f"self.{name}"
        for name in ("_models", "_optimizers", "_schedulers", "_dataloaders", "_custom_objects")
    ),
    DataLoaderShard: ("self.synchronized_generator", "self.iteration"),
}

# Constructors here hand on whatever they are given, or are written by dataclasses, as are the others.
GENERATED = ("__init__", "__repr__", "__eq__")


def named(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


@pytest.mark.parametrize(("function", "expected"), PARAMETERS.items(), ids=map(named, PARAMETERS))
def test_parameters_are_those_that_were_read(function: Callable[..., Any], expected: list[str]) -> None:
    found = list(inspect.signature(function).parameters)
    assert found == expected, f"{named(function)} takes other parameters now: {found}, not {expected}"


@pytest.mark.parametrize(("thing", "expected"), MENTIONS.items(), ids=map(named, MENTIONS))
def test_sources_say_what_was_read(thing: Any, expected: tuple[str, ...]) -> None:
    source = " ".join(inspect.getsource(thing).split())
    for words in expected:
        assert words in source, f"{named(thing)} no longer says {words!r}"


def overridden(ours: type, theirs: Iterable[type]) -> list[Callable[..., Any]]:
    """The functions of transformers in whose place something stands here."""
    names = [name for name in vars(ours) if inspect.isroutine(getattr(ours, name)) and name not in GENERATED]
    own = [vars(kind)[name] for kind in theirs for name in names if name in vars(kind)]
    return [getattr(each, "__func__", each) for each in own]


def test_everything_that_is_overridden_is_told_above() -> None:
    pairs = (
        (Decentralized, (Trainer,)),
        (DecentralizedArguments, (TrainingArguments,)),
        (AgreedCallbacks, (CallbackHandler,)),
    )
    found = [function for ours, theirs in pairs for function in overridden(ours, theirs)]
    missing = [named(f) for f in found if f not in PARAMETERS]
    assert not missing and len(found) > 18


def test_the_trainer_calls_what_is_overridden() -> None:
    source = inspect.getsource(inspect.getmodule(Trainer))  # type: ignore[arg-type]
    for function in overridden(Decentralized, (Trainer,)):
        if function.__name__ not in ("__init__", "train"):  # these a user calls
            assert f"self.{function.__name__}(" in source, f"{named(function)} is no longer called"


def test_the_schedule_of_training_is_a_tuple_in_this_order() -> None:
    source = " ".join(inspect.getsource(Trainer.set_initial_training_values).split())
    order = (
        "num_train_epochs, num_update_steps_per_epoch, num_examples, num_train_samples, "
        "total_train_batch_size, steps_in_epoch, max_steps, )"
    )
    assert order in source, "Trainer.set_initial_training_values gives back something else"


def test_wishes_of_callbacks_are_these() -> None:
    assert {each.name for each in fields(TrainerControl)} == {*_FLAGS}
    events = {name for name in vars(TrainerCallback) if name.startswith("on_")}
    told = {*_AGREED_AT, *(event for own in _AGREED_AT.values() for event in own)}
    quiet = {"on_init_end", "on_train_end", "on_prediction_step", "on_predict", "on_push_begin"}
    assert events - told <= quiet, f"callbacks have new events: {events - told - quiet}"
    assert told <= events
