"""While a script is only measured: its workers compute and do not talk, and nothing of the user's is written.

Like :mod:`hf_decentral.run` this puts other functions in the place of a few, in this process, before the
script begins; the script is not read or changed.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import nn

from hf_decentral.integrations.launch import check_whole
from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology

logger = logging.getLogger(__name__)
_NEVER = 10**9  # steps
_TALK = "complete"  # what settings name; no round of it ever begins


def idle(workers: int) -> Topology:
    """Rounds in which nobody talks."""
    return Topology.cycle("idle", [Round.identity(workers)])


class Silence:
    """What the script has prepared, and whether it has begun to train.

    Attributes:
        models: what its Accelerators have prepared.
        training: from here on, what would be saved is not.
    """

    def __init__(self) -> None:
        self.models: list[nn.Module] = []
        self.training = False

    @contextmanager
    def kept(self) -> Iterator[Silence]:
        """Inside, workers do not talk in their steps, and checkpoints are not written."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hfd-calibrate-"))
            self._without_wrapping(stack)
            self._without_rounds(stack)
            self._elsewhere(stack, folder)
            self._without_saving(stack)
            self._without_ending(stack)
            yield self

    def _without_wrapping(self, stack: ExitStack) -> None:
        """No DistributedDataParallel, in the way that Accelerate itself offers."""
        accelerator = import_module("accelerate").Accelerator
        original = accelerator.prepare_model

        def prepare_model(
            own: Any, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
        ) -> Any:
            check_whole(own)
            prepared = original(own, model, device_placement=device_placement, evaluation_mode=True)
            self.models.append(prepared)
            return prepared

        stack.enter_context(_instead(accelerator, "prepare_model", prepare_model))

    def _without_rounds(self, stack: ExitStack) -> None:
        """Optimizers gossip, and every round is idle, whatever the script, its flags and files ask for."""
        optim, attach = import_module("hf_decentral.optim"), import_module("hf_decentral.optim.attach")
        decentralize = attach.decentralize

        def quiet(optimizer: Any, topology: Any = None, **how: Any) -> Any:
            transport = how.get("transport") or attach._default_transport(how.get("comm_timeout", 600.0))
            kept = {name: how[name] for name in ("model", "guard", "bucket_mb") if name in how}
            return decentralize(optimizer, idle(transport.workers), transport=transport, **kept)

        settings = import_module("hf_decentral.integrations.settings")
        resolve = settings.resolve

        def settled(*args: Any, **kwargs: Any) -> Any:
            found = resolve(*args, **kwargs)
            sources = tuple({**dict(found.sources), "topology": "calibrate"}.items())
            plain = {"averaging": "plain", "order": "awc", "algorithm": None, "period": None, "delay": None}
            return replace(found, topology=_TALK, sources=sources, **plain)

        wrapping = import_module("hf_decentral.integrations.wrapping")
        plugin = import_module("hf_decentral.integrations.plugin")
        for owner in (optim, attach, wrapping):
            stack.enter_context(_instead(owner, "decentralize", quiet))
        for owner in (settings, plugin):
            stack.enter_context(_instead(owner, "resolve", settled))

    def _elsewhere(self, stack: ExitStack, folder: str) -> None:
        """Trainers write to a folder that goes away, evaluate never, and report to nobody."""
        arguments = import_module("transformers.training_args")
        original = arguments.TrainingArguments.__post_init__

        def post_init(own: Any) -> None:
            original(own)
            own.output_dir, own.report_to, own.push_to_hub = folder, [], False
            own.logging_strategy = own.save_strategy = arguments.IntervalStrategy.NO
            if own.eval_strategy != arguments.IntervalStrategy.NO:
                # Not none: early stopping insists on some.
                own.eval_strategy, own.eval_steps = arguments.IntervalStrategy.STEPS, _NEVER
            own.eval_on_start, own.disable_tqdm = False, True

        stack.enter_context(_instead(arguments.TrainingArguments, "__post_init__", post_init))

    def _without_saving(self, stack: ExitStack) -> None:
        """From the first step on, nothing is saved."""
        for home, kind, names in (
            ("transformers.trainer", "Trainer", ("_save_checkpoint", "save_model")),
            ("hf_decentral.trainer.trainers", "Decentralized", ("_save_checkpoint",)),
            ("transformers.modeling_utils", "PreTrainedModel", ("save_pretrained",)),
            ("accelerate", "Accelerator", ("save_state", "save_model", "save")),
            ("torch", None, ("save",)),
            ("safetensors.torch", None, ("save_file", "save_model")),
        ):
            module = import_module(home)
            owner = module if kind is None else getattr(module, kind)
            for name in names:
                stack.enter_context(_instead(owner, name, self._unless_training(name, getattr(owner, name))))

    def _without_ending(self, stack: ExitStack) -> None:
        """A script that is stopped may tidy up, in a ``finally``: its workers are still needed together."""
        accelerator, distributed = import_module("accelerate").Accelerator, import_module("torch.distributed")
        for owner, name in ((accelerator, "end_training"), (distributed, "destroy_process_group")):
            stack.enter_context(_instead(owner, name, self._unless_training(name, getattr(owner, name))))
        # No tracker is started: what it is told, and its end, go nowhere.
        stack.enter_context(_instead(accelerator, "init_trackers", lambda own, *args, **kwargs: None))

    def _unless_training(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            if self.training:
                logger.info("calibrate: %s() was called and did nothing", name)
                return None
            return original(*args, **kwargs)

        return act

    def model_of(self, optimizer: torch.optim.Optimizer) -> nn.Module | None:
        """The prepared model that holds most of the parameters of an optimizer; None: it holds none."""
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        held = [(sum(id(p) in own for p in model.parameters()), model) for model in self.models]
        most, model = max(held, key=lambda each: each[0], default=(0, None))
        return model if most else None


@contextmanager
def _instead(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Inside, another function stands in the place of one."""
    inherited = name not in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
