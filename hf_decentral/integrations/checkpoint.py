"""``save_state`` and ``load_state`` of an Accelerator whose workers each have a replica of their own.

The folder of a checkpoint:

    decentral.json              workers, topology, fingerprint, the size of every file: written last
    model.safetensors           the consensus: what anybody loads
    decentral_worker_3.pt       worker 3's replica, moments, schedulers, scaler, loaders, random numbers
    decentral_custom_3.pkl      worker 3's registered objects, where there are any

Under All-Reduce the replicas are equal, and only worker 0's file holds one.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import load as load_plain
from safetensors.torch import load_file, save_file

from hf_decentral.errors.checkpoint import half_loaded, no_folder, not_loaded, other_run
from hf_decentral.integrations import snapshot
from hf_decentral.integrations.folder import Aside, problem_with, read_manifest, told
from hf_decentral.integrations.settings import ALLREDUCE

if TYPE_CHECKING:
    from hf_decentral.integrations.plugin import DecentralizedPlugin

logger = logging.getLogger(__name__)
_NUMBERED = re.compile(r"checkpoint_(\d+)")


def save_state(
    plugin: DecentralizedPlugin,
    output_dir: str | os.PathLike[str] | None = None,
    safe_serialization: bool = True,
) -> Path:
    """Write every worker's state, and the consensus, into a folder. Collective.

    The folder is written beside its place and renamed, so that a checkpoint of that name survives a failure.

    Args:
        plugin: the plugin.
        output_dir: the folder; None: numbered, where the Accelerator's project configuration says so.
        safe_serialization: the consensus as safetensors; otherwise as ``pytorch_model.bin``.

    Returns:
        The folder.

    Raises:
        CheckpointError: on every worker, where one could not write its part.
    """
    accelerator = plugin.accelerator
    target = _next_folder(accelerator, output_dir)
    aside = Aside(target, accelerator.process_index, plugin.gather)
    aside.open()
    weights = _consensus(plugin)
    aside.together(lambda: _write(plugin, aside, weights, safe_serialization))
    about = {
        "version": 1,
        "workers": plugin.workers,
        "topology": plugin.topology,
        "fingerprint": snapshot.fingerprint(accelerator),
    }
    aside.together(lambda: aside.commit(about))
    project = accelerator.project_configuration
    if project.automatic_checkpoint_naming:
        _delete_oldest(target.parent, project.total_limit, keep=target, act=aside.keeper)
    project.iteration += 1
    return target


def _consensus(plugin: DecentralizedPlugin) -> list[dict[str, Any]]:
    """The consensus weights of every model, in memory of their own. Collective."""
    from hf_decentral.integrations.wrapping import own_memory

    accelerator = plugin.accelerator
    with ExitStack() as stack:
        for model in accelerator._models:
            if plugin.gossips and plugin.trains(model):
                stack.enter_context(plugin.averaged(model))
        return [own_memory(model.state_dict()) for model in snapshot.models_of(accelerator)]


def _write(plugin: DecentralizedPlugin, aside: Aside, weights: list[dict[str, Any]], safe: bool) -> None:
    """This worker's part."""
    accelerator, worker = plugin.accelerator, plugin.accelerator.process_index
    for hook in accelerator._save_model_state_pre_hook.values():
        hook(accelerator._models, weights, str(aside.path))  # as in Accelerate, it may take weights out
    if aside.keeper:
        for k, state in enumerate(weights):
            path = aside.path / _weights_name(k, safe)
            save_file(_once(state), path, metadata={"format": "pt"}) if safe else torch.save(state, path)
    state = snapshot.own(accelerator)
    if plugin.gossips or worker == 0:
        state |= snapshot.replica(accelerator)
    torch.save(state, aside.path / _worker_name(worker))
    if accelerator._custom_objects:
        custom = [thing.state_dict() for thing in accelerator._custom_objects]
        torch.save(custom, aside.path / _custom_name(worker))


def load_state(
    plugin: DecentralizedPlugin, input_dir: str | os.PathLike[str] | None = None, **load_model_kwargs: Any
) -> None:
    """Go on exactly where :func:`save_state` was called. Collective.

    With another number of workers every worker starts from the consensus with new moments (under All-Reduce
    with the saved ones), and a warning says so.

    Args:
        plugin: the plugin.
        input_dir: the folder; None: the last numbered one.
        load_model_kwargs: what a load hook of the user's wants; not needed here.

    Raises:
        CheckpointError: on every worker, where one has no whole checkpoint of this run. Nothing is changed.
    """
    accelerator = plugin.accelerator
    folder = _last_folder(accelerator, input_dir)
    if accelerator.is_local_main_process and folder.parent.is_dir():
        Aside(folder, accelerator.process_index, plugin.gather).recover()
    plugin.gather(None)
    problem, cause, loaded = None, None, {}
    try:
        problem = _misfit(plugin, folder)
        loaded = {} if problem else _read(plugin, folder)
    except Exception as error:  # whatever it is, the others must hear of it
        problem, cause = told(error), error
    problems = {k: text for k, text in enumerate(plugin.gather(problem)) if text is not None}
    if problems:
        raise not_loaded(str(folder), problems) from cause
    try:
        _put(plugin, folder, loaded)
    except Exception as error:
        problem, cause = told(error), error
    problems = {k: text for k, text in enumerate(plugin.gather(problem)) if text is not None}
    if problems:
        raise half_loaded(str(folder), problems) from cause


def _misfit(plugin: DecentralizedPlugin, folder: Path) -> str | None:
    """Why this worker cannot load the folder, or None."""
    accelerator = plugin.accelerator
    manifest = read_manifest(folder)
    same = manifest.get("workers") == plugin.workers
    own = (
        _worker_name(accelerator.process_index if same else 0),
        _custom_name(accelerator.process_index if same else 0),
    )
    problem = problem_with(folder, lambda name: name in own or not name.startswith("decentral_"))
    if problem:
        return problem
    if manifest.get("topology") != plugin.topology:
        return other_run("the topology", repr(manifest.get("topology")), repr(plugin.topology))
    found, expected = manifest.get("fingerprint", {}), snapshot.fingerprint(accelerator)
    for what in (*expected, *found):
        if found.get(what) != expected.get(what):
            return other_run(what, found.get(what, "not there"), expected.get(what, "not there"))
    return None


def _read(plugin: DecentralizedPlugin, folder: Path) -> dict[str, Any]:
    """What this worker needs from the folder, on the CPU."""
    accelerator = plugin.accelerator
    same = read_manifest(folder)["workers"] == plugin.workers
    worker = accelerator.process_index if same else 0
    loaded: dict[str, Any] = {"same": same, "weights": [], "custom": []}
    loaded |= load_plain(folder / _worker_name(worker), map_location="cpu")
    if "models" not in loaded:
        first = load_plain(folder / _worker_name(0), map_location="cpu")
        loaded |= {name: first[name] for name in ("models", "optimizers")}
    if not same and plugin.gossips:
        for k in range(len(accelerator._models)):
            safe = folder / _weights_name(k, True)
            loaded["weights"].append(
                load_file(safe)
                if safe.is_file()
                else load_plain(folder / _weights_name(k, False), map_location="cpu")
            )
    if accelerator._custom_objects:
        # As in Accelerate: a registered object may keep anything in its state.
        loaded["custom"] = torch.load(folder / _custom_name(worker), map_location="cpu", weights_only=False)
    return loaded


def _put(plugin: DecentralizedPlugin, folder: Path, loaded: dict[str, Any]) -> None:
    """Put what was read in its place."""
    accelerator = plugin.accelerator
    for hook in accelerator._load_model_state_pre_hook.values():
        hook(list(accelerator._models), str(folder))
    if loaded["same"] or plugin.topology == ALLREDUCE:
        snapshot.put_replica(accelerator, plugin.handles, loaded)
    else:
        snapshot.restart(accelerator, plugin.handles, loaded["weights"], loaded)
    for thing, state in zip(accelerator._custom_objects, loaded["custom"], strict=True):
        thing.load_state_dict(state)
    if loaded["same"]:
        snapshot.put_own(accelerator, loaded)
        return
    snapshot.put_shared(accelerator, loaded)
    if accelerator.is_main_process:
        moments = "the saved moments" if plugin.topology == ALLREDUCE else "the consensus with new moments"
        logger.warning(
            "%s was written by %d workers and is loaded by %d: every worker starts from %s; loaders and "
            "random numbers start anew",
            folder,
            read_manifest(folder)["workers"],
            plugin.workers,
            moments,
        )


def _weights_name(model: int, safe: bool) -> str:
    """The name that Accelerate's load_checkpoint_in_model and from_pretrained look for."""
    name = "model{}.safetensors" if safe else "pytorch_model{}.bin"
    return name.format(f"_{model}" if model else "")


def _worker_name(worker: int) -> str:
    return f"decentral_worker_{worker}.pt"


def _custom_name(worker: int) -> str:
    return f"decentral_custom_{worker}.pkl"


def _once(state: dict[str, Any]) -> dict[str, Any]:
    """Tied weights under their first name only, as safetensors wants them."""
    seen: set[int] = set()
    kept = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor) or (tensor.numel() and tensor.data_ptr() in seen):
            continue
        seen.add(tensor.data_ptr())
        kept[name] = tensor.contiguous()
    return kept


def _next_folder(accelerator: Accelerator, given: str | os.PathLike[str] | None) -> Path:
    project = accelerator.project_configuration
    if project.automatic_checkpoint_naming:
        return Path(accelerator.project_dir).absolute() / "checkpoints" / f"checkpoint_{project.iteration}"
    if given is None:
        raise no_folder()
    return Path(given).expanduser().absolute()


def _last_folder(accelerator: Accelerator, given: str | os.PathLike[str] | None) -> Path:
    if given is not None:
        return Path(given).expanduser().absolute()
    if not accelerator.project_configuration.automatic_checkpoint_naming:
        raise no_folder()
    parent = Path(accelerator.project_dir).absolute() / "checkpoints"
    numbered = _numbered(parent)
    return numbered[-1] if numbered else parent / "checkpoint_0"


def _numbered(parent: Path) -> list[Path]:
    """The numbered checkpoints, oldest first."""
    found = [
        (int(match[1]), p) for p in parent.glob("checkpoint_*") if (match := _NUMBERED.fullmatch(p.name))
    ]
    return [path for _, path in sorted(found)]


def _delete_oldest(parent: Path, limit: int | None, *, keep: Path, act: bool) -> None:
    """Only now that the new one is complete."""
    if act and limit is not None:
        others = [path for path in _numbered(parent) if path != keep]
        for path in others[: max(0, len(others) + 1 - limit)]:
            shutil.rmtree(path, ignore_errors=True)
