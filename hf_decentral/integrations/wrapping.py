"""What changes in an Accelerator that a plugin is attached to: a few methods of that one object."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer

from hf_decentral.errors.launch import model_not_prepared, uneven_inputs
from hf_decentral.integrations import checkpoint
from hf_decentral.integrations.launch import is_sharded
from hf_decentral.integrations.snapshot import own_memory
from hf_decentral.optim import decentralize

if TYPE_CHECKING:
    from hf_decentral.integrations.plugin import DecentralizedPlugin

_SEEN = "_hf_decentral_seen"


class AllReduced:
    """Counts the gradients that stock DistributedDataParallel has reduced."""

    def __init__(self) -> None:
        self._gradient_bytes = 0

    def watch(self, optimizer: Optimizer) -> None:
        """Count the steps of an optimizer."""
        optimizer.register_step_post_hook(self._count)

    def _count(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._gradient_bytes += sum(p.numel() * p.element_size() for p in params)

    def sent_bytes(self, workers: int) -> float:
        """What a ring all-reduce of them sends from each worker."""
        return 2 * (workers - 1) / workers * self._gradient_bytes


class Wrapping:
    """Puts the plugin's methods in the place of the Accelerator's.

    ``prepare_model`` skips the wrap into DistributedDataParallel the way Accelerate itself offers
    (``evaluation_mode``): device placement, autocast and compilation stay. ``prepare`` makes optimizers
    gossip at its end, when models have reached their device.

    Args:
        plugin: the plugin.
        accelerator: its Accelerator.
        how: gives the arguments of ``decentralize()``.
        allreduced: the counter of the baseline.
    """

    def __init__(
        self,
        plugin: DecentralizedPlugin,
        accelerator: Accelerator,
        how: Callable[[], dict[str, Any]],
        allreduced: AllReduced,
    ) -> None:
        self._plugin = plugin
        self._accelerator = accelerator
        self._how = how
        self._allreduced = allreduced
        self._depth = 0
        self._average = True
        self._original: dict[str, Callable[..., Any]] = {}
        for name in ("prepare", "prepare_optimizer"):
            self._replace(name, getattr(self, f"_{name}"))
        if not is_sharded(accelerator):
            self._replace("save_state", lambda *a, **k: checkpoint.save_state(plugin, *a, **k))
            self._replace("load_state", lambda *a, **k: checkpoint.load_state(plugin, *a, **k))
            self._replace("get_state_dict", self._get_state_dict)
            self._replace("save_model", self._save_model)
        if plugin.gossips:
            for name in ("prepare_model", "join_uneven_inputs", "backward"):
                self._replace(name, getattr(self, f"_{name}"))

    def _replace(self, name: str, method: Callable[..., Any]) -> None:
        self._original[name] = getattr(self._accelerator, name)
        setattr(self._accelerator, name, method)

    def _prepare(self, *args: Any, **kwargs: Any) -> Any:
        self._depth += 1
        try:
            result = self._original["prepare"](*args, **kwargs)
        finally:
            self._depth -= 1
        self._join_new()
        return result

    def _prepare_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        prepared = self._original["prepare_optimizer"](*args, **kwargs)
        self._join_new()
        return prepared

    def _backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """As stock, and the loss is told to the methods that look at it (AL-DSGD's leaders)."""
        for handle in self._plugin.handles:
            if handle.plan.method.informed:
                handle.loss = loss.detach().mean().reshape(1)
        self._original["backward"](loss, **kwargs)

    def _prepare_model(
        self, model: nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Any:
        prepared = self._original["prepare_model"](
            model, device_placement=device_placement, evaluation_mode=True
        )
        self._join_new()
        return prepared

    def _join_new(self) -> None:
        """Let prepared optimizers take part, as soon as their models are prepared too. Collective."""
        if self._depth:
            return
        for prepared in self._accelerator._optimizers:
            optimizer = prepared.optimizer
            if not self._plugin.gossips:
                if not hasattr(optimizer, _SEEN):
                    setattr(optimizer, _SEEN, None)
                    self._allreduced.watch(optimizer)
                continue
            if getattr(optimizer, _SEEN, True) is None:
                continue
            models = self._models_of(optimizer)
            if models:
                self._decentralize(optimizer, models)
            elif not hasattr(optimizer, _SEEN):
                setattr(optimizer, _SEEN, optimizer.register_step_pre_hook(_refuse))

    def _decentralize(self, optimizer: Optimizer, models: list[nn.Module]) -> None:
        waiting = getattr(optimizer, _SEEN, None)
        if waiting is not None:
            waiting.remove()
        model = models[0] if len(models) == 1 else nn.ModuleList(models)
        decentralize(optimizer, model=model, **self._how())
        setattr(optimizer, _SEEN, None)
        if self._plugin.auto is not None:
            self._plugin.auto.watch(optimizer, models[0])

    def _models_of(self, optimizer: Optimizer) -> list[nn.Module]:
        """The prepared models that this optimizer trains."""
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [m for m in self._accelerator._models if any(id(p) in own for p in m.parameters())]

    def _get_state_dict(self, model: nn.Module, unwrap: bool = True, average: bool | None = None) -> Any:
        """As Accelerate's, with the consensus by default, and without the names that torch.compile adds.

        Collective unless ``average=False``.
        """
        average = self._average if average is None else average
        plain = self._accelerator.unwrap_model(model, keep_torch_compile=False) if unwrap else model
        gossips = self._plugin.gossips and self._plugin.trains(model)
        with self._plugin.averaged(model) if average and gossips else nullcontext():
            return own_memory(plain.state_dict())

    def _save_model(
        self, model: nn.Module, save_directory: Any, *args: Any, average: bool = True, **kwargs: Any
    ) -> Any:
        """As Accelerate's, with the consensus by default. Collective unless ``average=False``."""
        self._average = average
        try:
            return self._original["save_model"](model, save_directory, *args, **kwargs)
        finally:
            self._average = True

    def _join_uneven_inputs(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise uneven_inputs()


def _refuse(*args: Any) -> NoReturn:
    raise model_not_prepared()
