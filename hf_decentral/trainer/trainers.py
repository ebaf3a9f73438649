"""Trainers of transformers whose workers average parameters with neighbours.

With ``topology="allreduce"``, or one worker, everything here steps aside for the stock Trainer.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import Seq2SeqTrainer, Trainer, TrainingArguments
from transformers.trainer_utils import has_length

from hf_decentral.errors.trainer import several_devices
from hf_decentral.integrations import optimizers, settings
from hf_decentral.integrations.snapshot import frozen, own_memory
from hf_decentral.trainer import names, position, saving
from hf_decentral.trainer.arguments import make_plugin
from hf_decentral.trainer.disks import where_told
from hf_decentral.trainer.lockstep import (
    AgreedCallbacks,
    CommonEnd,
    Meetings,
    common_schedule,
    same_rows,
    some_rows,
)
from hf_decentral.trainer.report import Report

logger = logging.getLogger(__name__)
# A mixin to be put before a Trainer: what it calls by super() is the Trainer's.
if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object


class Decentralized(_Base):
    """What is changed in a Trainer; comes before it among the bases of a class.

    Attributes:
        plugin: the :class:`~hf_decentral.DecentralizedPlugin` that is attached to the Trainer's Accelerator.
    """

    callback_handler: Any
    model: Any
    args: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._united: tuple[int, ...] | None = None
        self._report = Report()
        self._troubles: list[Exception] | None = None  # while a checkpoint is written: what failed here
        super().__init__(*args, **kwargs)
        if self.gossips:
            gather = self._meetings.gather_for("a decision of a callback")
            self.callback_handler = AgreedCallbacks(self.callback_handler, gather)

    def create_accelerator_and_postprocess(self) -> None:
        """As stock, with the plugin attached."""
        super().create_accelerator_and_postprocess()
        self.plugin = make_plugin(self.args)
        if self.plugin.gossips and self.args.n_gpu > 1:
            raise several_devices(self.args.n_gpu)
        self.plugin.attach(self.accelerator)
        self._meetings = Meetings(self.plugin)
        self._common_end = CommonEnd(self._meetings.gather_for("the next batches of the data"))
        if self.gossips:
            # A worker's loss is the mean over its own tokens: no gather in a step, no factor for DDP's mean.
            self.args.average_tokens_across_devices = False

    @property
    def gossips(self) -> bool:
        """Whether several workers average with neighbours here."""
        return self.plugin.gossips and self.plugin.workers > 1

    # ---- optimizer ----

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: TrainingArguments, model: Any = None) -> tuple[Any, Any]:
        """As stock, for our names too."""
        if names.is_ours(args.optim):
            found = settings.resolve({name: getattr(args, name, None) for name in optimizers.WINDOW})
            return names.class_and_settings(args, {name: getattr(found, name) for name in optimizers.WINDOW})
        return Trainer.get_optimizer_cls_and_kwargs(args, model)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """As stock, with the embeddings' own rate."""
        fresh = self.optimizer is None
        made: torch.optim.Optimizer = super().create_optimizer(model)
        scale = getattr(self.args, "embedding_scale", None)
        if fresh and scale not in (None, 1):
            optimizers.scale_embeddings(made, self.model if model is None else model, scale)
        return made

    # ---- the same steps everywhere ----

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> tuple[Any, ...]:
        """As stock; where workers have different numbers of batches, the fewest count for all."""
        own: tuple[Any, ...] = super().set_initial_training_values(args, dataloader)
        return common_schedule(self._meetings.gather_for("the steps"), own) if self.gossips else own

    def _init_training_state(
        self, max_steps: int, per_epoch: int, epochs: int, checkpoint: str | None, trial: Any
    ) -> tuple[int, int]:
        """As stock; where the data has no length, in the epoch in which the checkpoint was taken."""
        found = super()._init_training_state(max_steps, per_epoch, epochs, checkpoint, trial)
        if self.gossips and epochs == sys.maxsize and found != (0, 0):
            found = position.of(str(checkpoint), self.args.gradient_accumulation_steps, max_steps)
            self._common_end.resumed = found[1] > 0
        return found

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        """As stock; bytes and waiting count from here, where the optimizer, new or kept, is ready."""
        prepared = super()._prepare_for_training(*args, **kwargs)
        self._report.begin(self.plugin)
        return prepared

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        """As stock; data of unknown length ends on all workers at the same step."""
        if self.gossips and not has_length(self.callback_handler.train_dataloader):
            epoch_iterator = iter(self._common_end.take(epoch_iterator, num_batches))
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    # ---- the consensus ----

    @contextmanager
    def _consensus(self, what: str) -> Iterator[None]:
        """The model holds the mean of all workers. Collective, unless every worker has it already."""
        if not self.gossips or not self.plugin.trains(self.model) or self._united == self._versions():
            yield
            return
        self._meetings.gather_for(what)(None)
        with self.plugin.averaged(self.model):
            yield

    def _unite(self) -> None:
        """Give every worker the mean of all, for good. Collective."""
        for handle in self.plugin.handles:
            handle.unite(self.model)
        self._united = self._versions()

    def _versions(self) -> tuple[int, ...]:
        return tuple(p._version for p in self.model.parameters())

    def evaluation_loop(self, dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock, on the consensus: also for ``predict`` and generation."""
        if not self.gossips:
            return super().evaluation_loop(dataloader, *args, **kwargs)
        same_rows(dataloader, self._meetings.gather_for("evaluate() or predict()"))
        # Seq2SeqTrainer counts rows twice that fill the last batch; metrics would tell of the workers
        self.gather_function = self.accelerator.gather_for_metrics
        with self._consensus("evaluate() or predict()"), self.plugin.naming():
            return super().evaluation_loop(dataloader, *args, **kwargs)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        """As stock; every worker's model then is the consensus (or the best one of it)."""
        if not self.gossips:
            return super()._finalize_training(*args, **kwargs)
        self._unite()
        result = super()._finalize_training(*args, **kwargs)
        self._united = self._versions()
        return result

    # ---- logs ----

    def _together(self) -> AbstractContextManager[None]:
        handler = self.callback_handler
        return handler.together() if isinstance(handler, AgreedCallbacks) else nullcontext()

    def _maybe_log_save_evaluate(self, tr_loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        """As stock; what a callback wants meanwhile, all workers do."""
        steps = self.state.global_step - self._globalstep_last_logged
        if self.gossips and self.control.should_log and steps > 0:
            # Before stock gathers: where a worker was lost, this one tells which.
            self._report.losses = self._meetings.gather_for("a line of the log")(tr_loss.item() / steps)
        with self._together():
            super()._maybe_log_save_evaluate(tr_loss, *args, **kwargs)

    def _evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As stock; what a callback wants meanwhile, all workers do."""
        with self._together():
            return super()._evaluate(*args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As stock; at logging steps also the workers' losses, their distance, bytes and waiting."""
        if self._report.losses and "loss" in logs:
            logs |= self._report.line(self.plugin, getattr(self.args, "log_consensus", True))
        super().log(logs, start_time)

    # ---- saving ----

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """A worker that fails while all write a checkpoint tells the others in the end, not in the middle."""
        try:
            yield
        except Exception as error:
            if self._troubles is None:
                raise
            self._troubles.append(error)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """As stock, with the weights of the consensus. Collective."""
        with self._consensus("save_model()"), self._noting():
            plain = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
            if self.gossips and state_dict is None and self.args.should_save:
                state_dict = own_memory(plain.state_dict(), shared=frozen(plain))
            with where_told(plain) if self.gossips else nullcontext():
                super()._save(output_dir, state_dict)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        with self._noting():
            super()._save_optimizer_and_scheduler(output_dir)

    def _save_rng_state(self, output_dir: str) -> None:
        with self._noting():
            super()._save_rng_state(output_dir)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """As stock, with every worker's own state beside the consensus. Collective.

        Raises:
            CheckpointError: on every worker, where one could not write; the checkpoints before are kept.
        """
        if not self.gossips:
            super()._save_checkpoint(model, trial)
            return
        run_folder = self._get_output_dir(trial)
        folder = Path(run_folder) / f"checkpoint-{self.state.global_step}"
        # None goes before this one is whole.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        self._troubles = []
        try:
            saving.Saving(self.plugin, folder, self._meetings.gather_for("a checkpoint")).write(
                lambda: self._write(model, trial, folder)
            )
        finally:
            self._troubles, self.args.save_total_limit = None, limit
        if self.args.should_save:
            saving.rotate(run_folder, limit, self.state.best_model_checkpoint)

    def _write(self, model: Any, trial: Any, folder: Path) -> None:
        """This worker's part of a checkpoint."""
        super()._save_checkpoint(model, trial)
        if getattr(self.args, "save_workers", True):
            folder.mkdir(parents=True, exist_ok=True)  # where hosts share no disk
            own = saving.own_state(self.plugin, self.lr_scheduler)
            torch.save(own, folder / saving.worker_name(self.args.process_index))
            if self.args.save_only_model:
                self._save_rng_state(str(folder))
        if self._troubles:
            raise self._troubles[0]

    # ---- resuming ----

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As stock. ``resume_from_checkpoint=True`` takes the last one that is whole on every worker; raises
        CheckpointError or SettingsError, on every worker, where one cannot read its part or there is none."""
        if resume_from_checkpoint in ("True", "true"):  # as scripts hand on --resume_from_checkpoint, a text
            resume_from_checkpoint = True
        some_rows(self.train_dataset, self._meetings.gather_for("train()") if self.gossips else None)
        if not self.gossips:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        if resume_from_checkpoint:
            resume_from_checkpoint = saving.choose(self.plugin, self.args.output_dir, resume_from_checkpoint)
        self._united = None
        self.model_wrapped = self.model  # an evaluation may have compiled it: it is prepared anew
        with self.plugin.naming():
            return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self.gossips and saving.holds_workers(checkpoint):
            saving.load(self.plugin, Path(str(checkpoint)), self.lr_scheduler)
            return
        if self.gossips and checkpoint is not None:
            logger.warning("%s holds no workers' states: all go on from its weights and moments", checkpoint)
        super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        if not (self.gossips and saving.holds_workers(checkpoint)):  # else each has its own
            super()._load_scaler(checkpoint)


class DecentralizedTrainer(Decentralized, Trainer):
    """``transformers.Trainer`` whose workers average parameters with neighbours, as the arguments say.

    Takes what the stock Trainer takes. ``evaluate``, ``predict``, ``save_model`` and checkpoints hold the
    consensus; after ``train`` every worker's model is the consensus.
    """


class DecentralizedSeq2SeqTrainer(Decentralized, Seq2SeqTrainer):
    """``transformers.Seq2SeqTrainer`` whose workers average parameters with neighbours; generation too runs
    on the consensus."""
