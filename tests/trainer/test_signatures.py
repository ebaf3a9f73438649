"""What we override or call in transformers and Accelerate, some of it private: upgrades fail here first."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from accelerate import Accelerator
from transformers import Seq2SeqTrainer, Trainer, TrainingArguments
from transformers.trainer_callback import CallbackHandler
from transformers.trainer_utils import rotate_checkpoints

EXPECTED: list[tuple[Any, str]] = [
    (Trainer.create_accelerator_and_postprocess, "self"),
    (Trainer.get_optimizer_cls_and_kwargs, "args model"),
    (Trainer.create_optimizer, "self model"),
    (Trainer.set_initial_training_values, "self args dataloader"),
    (Trainer.get_batch_samples, "self epoch_iterator num_batches device"),
    (
        Trainer.evaluation_loop,
        "self dataloader description prediction_loss_only ignore_keys metric_key_prefix",
    ),
    (Trainer._finalize_training, "self trial num_train_samples start_time"),
    (
        Trainer._maybe_log_save_evaluate,
        "self tr_loss grad_norm model trial epoch ignore_keys_for_eval start_time learning_rate",
    ),
    (Trainer._evaluate, "self trial ignore_keys_for_eval skip_scheduler"),
    (Trainer.log, "self logs start_time"),
    (Trainer._save, "self output_dir state_dict"),
    (Trainer._save_optimizer_and_scheduler, "self output_dir"),
    (Trainer._save_rng_state, "self output_dir"),
    (Trainer._save_checkpoint, "self model trial"),
    (Trainer._get_output_dir, "self trial"),
    (Trainer.train, "self resume_from_checkpoint trial ignore_keys_for_eval"),
    (Trainer._load_optimizer_and_scheduler, "self checkpoint"),
    (Trainer._load_scaler, "self checkpoint"),
    (TrainingArguments.__post_init__, "self"),
    (CallbackHandler.__init__, "self callbacks model processing_class optimizer lr_scheduler"),
    (CallbackHandler.call_event, "self event args state control kwargs"),
    (Accelerator.prepare_model, "self model device_placement evaluation_mode"),
    (Accelerator.prepare_optimizer, "self optimizer device_placement"),
    (Accelerator.get_state_dict, "self model unwrap"),
    (Accelerator.save_model, "self model save_directory max_shard_size safe_serialization"),
    (Accelerator.save_state, "self output_dir safe_serialization save_model_func_kwargs"),
    (Accelerator.load_state, "self input_dir load_kwargs load_model_func_kwargs"),
    (Accelerator.join_uneven_inputs, "self joinables even_batches"),
    (
        rotate_checkpoints,
        "output_dir save_total_limit best_model_checkpoint use_mtime checkpoint_prefix",
    ),
]


@pytest.mark.parametrize(("function", "names"), EXPECTED, ids=[f.__qualname__ for f, _ in EXPECTED])
def test_arguments_are_those_that_we_rely_on(function: Any, names: str) -> None:
    found = " ".join(inspect.signature(function).parameters)
    assert found == names, f"{function.__qualname__} was changed: see what hf_decentral makes of it"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Trainer, "_globalstep_last_logged"),
        (Trainer, "self.gather_function("),
        (Trainer, "self.control.should_log and self.state.global_step > self._globalstep_last_logged"),
        (Trainer, "self.set_initial_training_values(args, train_dataloader)"),
        (Trainer, "self.get_batch_samples("),
        (Trainer, "average_tokens_across_devices"),
        (Trainer, "output_dir = os.path.join(run_dir, checkpoint_folder)"),
        (Trainer, "self.model_accepts_loss_kwargs"),
        (Seq2SeqTrainer, "self.gather_function = self.accelerator.gather"),
        (Accelerator, "_save_model_state_pre_hook"),
    ],
)
def test_what_a_class_does_inside(kind: type, name: str) -> None:
    assert name in inspect.getsource(kind), f"{kind.__name__} no longer has {name!r}"
