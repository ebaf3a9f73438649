"""``save_state`` and ``load_state`` of an Accelerator whose workers each have a replica of their own.

The folder of a checkpoint:

    decentral.json              workers, topology, fingerprint, size and CRC-32 of every file: written last
    model.safetensors           the consensus: what anybody loads
    decentral_worker_3.pt       worker 3's replica, moments, schedulers, scaler, loaders, random numbers
    decentral_custom_3.pkl      worker 3's registered objects, where there are any

Under All-Reduce the replicas are equal, and only worker 0's file holds one.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import load as load_plain
from safetensors.torch import load_file, save_file

from hf_decentral.errors import CheckpointError
from hf_decentral.errors.checkpoint import Unfit, half_loaded, no_folder, not_loaded, other_run, several_saves
from hf_decentral.integrations import numbering, snapshot
from hf_decentral.integrations.composition import ALLREDUCE
from hf_decentral.integrations.folder import Aside, agreed, check, read_manifest

if TYPE_CHECKING:
    from hf_decentral.integrations.plugin import DecentralizedPlugin

logger = logging.getLogger(__name__)


def save_state(
    plugin: DecentralizedPlugin,
    output_dir: str | os.PathLike[str] | None = None,
    safe_serialization: bool = True,
) -> Path:
    """Write every worker's state, and the consensus, into a folder. Collective.

    The folder is written beside its place and renamed, so that a checkpoint of that name survives a failure.

    Args:
        plugin: the plugin.
        output_dir: the folder; where the Accelerator's project configuration says so, it is numbered
            instead, after those that are there.
        safe_serialization: the consensus as safetensors; otherwise as ``pytorch_model.bin``.

    Returns:
        The folder.

    Raises:
        CheckpointError: on every worker, where one could not write its part.
    """
    accelerator = plugin.accelerator
    target = _next_folder(plugin, output_dir)
    aside = Aside(target, accelerator.process_index, plugin.gather)
    aside.open()
    weights = _consensus(plugin)
    aside.together(lambda: _write(plugin, aside, weights, safe_serialization))
    about = {
        "version": 1,
        "workers": plugin.workers,
        "topology": plugin.topology,
        "averaging": plugin.averaging,
        "fingerprint": snapshot.fingerprint(accelerator),
    }
    aside.together(lambda: aside.commit(about))
    project = accelerator.project_configuration
    if project.automatic_checkpoint_naming:
        if aside.keeper:
            numbering.delete_oldest(target.parent, project.total_limit, target)
        project.iteration = (numbering.number_of(target) or 0) + 1
    else:
        project.iteration += 1
    return target


def _consensus(plugin: DecentralizedPlugin) -> list[dict[str, Any]]:
    """The consensus weights of every model, in memory of their own. Collective."""
    accelerator = plugin.accelerator
    with ExitStack() as stack:
        for model in accelerator._models:
            if plugin.gossips and plugin.trains(model):
                stack.enter_context(plugin.averaged(model))
        return [snapshot.own_memory(model.state_dict()) for model in snapshot.models_of(accelerator)]


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
        input_dir: the folder; None: the last numbered one that every worker has.
        load_model_kwargs: what a load hook of the user's wants; not needed here.

    Raises:
        CheckpointError: on every worker, where one has no whole checkpoint of this run. Nothing is changed.
    """
    accelerator = plugin.accelerator
    folder = _last_folder(plugin, input_dir)
    aside = Aside(folder, accelerator.process_index, plugin.gather)
    first = accelerator.is_local_main_process and folder.parent.is_dir()

    def refusal(problems: dict[int, str]) -> CheckpointError:
        return not_loaded(str(folder), problems)

    agreed(plugin.gather, lambda: aside.recover() if first else None, refusal)
    loaded = agreed(plugin.gather, lambda: _read(plugin, folder, _fitting(plugin, folder)), refusal)
    _check_one_save(plugin, folder, loaded["token"])
    plugin.resume(loaded["optimizers"], loaded["same"])
    agreed(
        plugin.gather,
        lambda: _put(plugin, folder, loaded),
        lambda problems: half_loaded(str(folder), problems),
    )
    project, number = accelerator.project_configuration, numbering.number_of(folder)
    if project.automatic_checkpoint_naming and number is not None:
        project.iteration = number + 1


def _check_one_save(plugin: DecentralizedPlugin, folder: Path, token: str | None) -> None:
    """See that all workers read the same save. Collective."""
    found: dict[tuple[str, str | None], list[int]] = {}
    for worker, what in enumerate(plugin.gather((str(folder), token))):
        found.setdefault(what, []).append(worker)
    if len({theirs for _, theirs in found}) > 1:
        raise several_saves(
            {
                f"{where} of save {(theirs or 'unnamed')[:8]}": workers
                for (where, theirs), workers in found.items()
            }
        )


def _fitting(plugin: DecentralizedPlugin, folder: Path) -> dict[str, Any]:
    """The manifest of a folder that this worker can load.

    Raises:
        Unfit: it cannot.
    """
    accelerator = plugin.accelerator
    manifest = read_manifest(folder)
    worker = accelerator.process_index if manifest.get("workers") == plugin.workers else 0
    own = (_worker_name(worker), _custom_name(worker))
    first = accelerator.is_local_main_process  # one of each host looks at what is common
    check(
        folder,
        needed=lambda name: name in own or not name.startswith("decentral_"),
        summed=lambda name: name in own or (first and not name.startswith("decentral_")),
    )
    if not plugin.fits(str(manifest.get("topology"))):
        raise Unfit(other_run("the topology", repr(manifest.get("topology")), repr(plugin.topology)))
    found, expected = manifest.get("fingerprint", {}), snapshot.fingerprint(accelerator)
    for what in (*expected, *found):
        if found.get(what) != expected.get(what):
            raise Unfit(other_run(what, found.get(what, "not there"), expected.get(what, "not there")))
    return manifest


def _read(plugin: DecentralizedPlugin, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """What this worker needs from the folder, on the CPU."""
    accelerator = plugin.accelerator
    same = manifest["workers"] == plugin.workers
    worker = accelerator.process_index if same else 0
    loaded: dict[str, Any] = {
        "same": same,
        "written_by": manifest["workers"],
        "token": manifest.get("token"),
        "weights": [],
        "custom": [],
    }
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
            loaded["written_by"],
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


def _next_folder(plugin: DecentralizedPlugin, given: str | os.PathLike[str] | None) -> Path:
    """Where to save. Collective where folders are numbered."""
    project = plugin.accelerator.project_configuration
    if project.automatic_checkpoint_naming:
        parent = _numbered_in(plugin.accelerator)
        return parent / f"checkpoint_{numbering.next_number(parent, project.iteration, plugin.gather)}"
    if given is None:
        raise no_folder()
    return Path(given).expanduser().absolute()


def _last_folder(plugin: DecentralizedPlugin, given: str | os.PathLike[str] | None) -> Path:
    """What to load. Collective where none is named."""
    if given is not None:
        return Path(given).expanduser().absolute()
    if not plugin.accelerator.project_configuration.automatic_checkpoint_naming:
        raise no_folder()
    parent = _numbered_in(plugin.accelerator)
    there = numbering.numbered(parent)
    common = numbering.last_common(there, plugin.gather)
    return common or (there[-1] if there else parent / "checkpoint_0")


def _numbered_in(accelerator: Accelerator) -> Path:
    return Path(accelerator.project_dir).absolute() / "checkpoints"
