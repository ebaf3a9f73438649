"""The whole state of one worker as plain tensors and numbers: taken out, and put back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer

from hf_decentral.optim import Gossip
from hf_decentral.optim.hooks import STATE_KEY

State = dict[str, Any]


def models_of(accelerator: Accelerator) -> list[nn.Module]:
    """The prepared models without what prepare() and torch.compile put around them."""
    return [accelerator.unwrap_model(m, keep_torch_compile=False) for m in accelerator._models]


def fingerprint(accelerator: Accelerator) -> dict[str, str]:
    """What must be equal for a checkpoint to fit: tells which, in words, where it does not."""
    found = {"the number of models": str(len(accelerator._models))}
    for k, model in enumerate(models_of(accelerator)):
        for name, tensor in model.state_dict().items():
            if isinstance(tensor, torch.Tensor):
                found[f"{name} of model {k}"] = f"{list(tensor.shape)} of {tensor.dtype}"
    for kind, things in (
        ("optimizer", [o.optimizer for o in accelerator._optimizers]),
        ("scheduler", [getattr(s, "scheduler", s) for s in accelerator._schedulers]),
        ("registered object", accelerator._custom_objects),
    ):
        found[f"the {kind}s"] = ", ".join(type(thing).__name__ for thing in things) or "none"
    found["the gradient scaler"] = "none" if accelerator.scaler is None else "one"
    return found


def replica(accelerator: Accelerator) -> State:
    """What differs between gossiping workers, and is the same under All-Reduce."""
    return {
        "models": [m.state_dict() for m in models_of(accelerator)],
        "optimizers": [o.state_dict() for o in accelerator._optimizers],
    }


def frozen(model: nn.Module) -> set[str]:
    """Names in ``state_dict()`` of parameters that are not trained, and of what quantized ones add there."""
    names = [n for n, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad]
    exact, within = set(names), tuple(f"{name}." for name in names)
    return {name for name in model.state_dict() if name in exact or name.startswith(within)}


def own_memory(state: State, shared: frozenset[str] | set[str] = frozenset()) -> State:
    """A copy in which every tensor has memory of its own, and tied ones still share it.

    Parameters of a gossiping optimizer are views of one bucket; Accelerate, when it saves, takes tensors in
    one storage for tied weights and keeps only the first.

    Args:
        state: the ``state_dict()`` of a model.
        shared: names that need no copy where they fill their memory: of what nobody changes before it is
            used, as :func:`frozen` tells.
    """
    copies: dict[tuple[Any, ...], torch.Tensor] = {}
    copied = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            t = value.detach()
            key = (t.data_ptr(), t.dtype, t.device, tuple(t.shape), t.stride()) if t.numel() else (name,)
            if key not in copies:
                stays = name in shared and t.untyped_storage().nbytes() == t.nbytes
                copies[key] = t if stays else t.clone()
            copied[name] = copies[key]
        else:
            copied[name] = value
    return copied


def own(accelerator: Accelerator) -> State:
    """What every worker has of its own, whatever the topology."""
    scaler = accelerator.scaler
    return {
        "schedulers": [s.state_dict() for s in accelerator._schedulers],
        "scaler": None if scaler is None else scaler.state_dict(),
        "loaders": [_loader_state(loader) for loader in accelerator._dataloaders],
        "step": accelerator.step,
        "random": _random_state(accelerator),
    }


def put_replica(accelerator: Accelerator, handles: list[Gossip], state: State) -> None:
    """Go on with the parameters and moments of a snapshot; weights that it leaves out stay."""
    for handle in handles:
        handle.discard()
    for model, values in zip(models_of(accelerator), state["models"], strict=True):
        _, unexpected = model.load_state_dict(values, strict=False)
        if unexpected:
            raise KeyError(f"unexpected weights {unexpected}")
    for optimizer, values in zip(accelerator._optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(values)


def put_own(accelerator: Accelerator, state: State) -> None:
    """Schedulers, scaler, loaders and random numbers; these last, since the rest may draw some."""
    put_shared(accelerator, state)
    for loader, values in zip(accelerator._dataloaders, state["loaders"], strict=False):
        _put_loader(loader, values)
    _put_random(accelerator, state["random"])


def put_shared(accelerator: Accelerator, state: State) -> None:
    """What also fits a run with another number of workers."""
    for scheduler, values in zip(accelerator._schedulers, state["schedulers"], strict=True):
        scheduler.load_state_dict(values)
    if accelerator.scaler is not None and state["scaler"]:
        accelerator.scaler.load_state_dict(state["scaler"])
    accelerator.step = state["step"]


def restart(accelerator: Accelerator, handles: list[Gossip], weights: list[State], state: State) -> None:
    """Go on with given weights and the settings (not the moments) of a snapshot's optimizers."""
    for handle in handles:
        handle.discard()
    for model, values in zip(models_of(accelerator), weights, strict=True):
        _load_untied(model, values)
    for prepared, values in zip(accelerator._optimizers, state["optimizers"], strict=True):
        optimizer: Optimizer = prepared.optimizer
        kept = {"state": {}, "param_groups": values["param_groups"]}
        rounds = values.get(STATE_KEY)
        if rounds is not None:
            kept[STATE_KEY] = {**rounds, "states": [{} for _ in rounds["states"]], "combined": False}
        optimizer.load_state_dict(kept)


def _load_untied(model: nn.Module, values: State) -> None:
    """Weights from a file that holds tied ones once."""
    missing, unexpected = model.load_state_dict(values, strict=False)
    own_values = model.state_dict()
    loaded = {own_values[name].data_ptr() for name in values if name in own_values}
    lost = [n for n in missing if own_values[n].data_ptr() not in loaded]
    if lost or unexpected:
        raise KeyError(f"missing weights {lost}, unexpected weights {unexpected}")


def _loader_state(loader: Any) -> State:
    """Where a loader stands: its epoch, the state of its shuffling, and its own state if it keeps one."""
    generator = getattr(loader, "synchronized_generator", None)
    return {
        "iteration": getattr(loader, "iteration", None),
        "generator": None if generator is None else generator.get_state(),
        "stateful": loader.state_dict() if getattr(loader, "use_stateful_dataloader", False) else None,
    }


def _put_loader(loader: Any, state: State) -> None:
    if state["iteration"] is not None and hasattr(loader, "iteration"):
        loader.iteration = state["iteration"]
    generator = getattr(loader, "synchronized_generator", None)
    if generator is not None and state["generator"] is not None:
        generator.set_state(state["generator"])
    if state["stateful"] is not None and getattr(loader, "use_stateful_dataloader", False):
        loader.load_state_dict(state["stateful"])


def _random_state(accelerator: Accelerator) -> State:
    kind, keys, *rest = np.random.get_state()
    device = accelerator.device
    return {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.uint32).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "device": None
        if device.type in ("cpu", "mps")
        else torch.get_device_module(device).get_rng_state(device),
    }


def _put_random(accelerator: Accelerator, state: State) -> None:
    kind, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    device = accelerator.device
    if state["device"] is not None and device.type not in ("cpu", "mps"):
        torch.get_device_module(device).set_rng_state(state["device"], device)
