"""A Trainer's checkpoint folder: the consensus as transformers writes it, and every worker's own state.

The folder ``checkpoint-500`` of transformers has these files more:

    decentral_worker_3.pt    worker 3's replica (without frozen weights), moments, scheduler, gradient scaler
    decentral.json           workers, topology, whether all weights are finite, size and CRC-32 of every file:
                             written last

A folder without ``decentral.json`` is not complete and is passed over when training is resumed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import load as load_plain
from transformers.trainer_utils import sort_checkpoints

from hf_decentral.errors.checkpoint import Unfit, not_loaded, not_saved, not_there, other_run
from hf_decentral.errors.trainer import no_whole_checkpoint
from hf_decentral.integrations import snapshot
from hf_decentral.integrations.folder import MANIFEST, Gather, agreed, check, checksum, read_manifest
from hf_decentral.integrations.numbering import last_common
from hf_decentral.integrations.plugin import DecentralizedPlugin
from hf_decentral.optim.hooks import finite

logger = logging.getLogger(__name__)
_STEP = re.compile(r"checkpoint-(\d+)")


def worker_name(worker: int) -> str:
    """The file of a worker."""
    return f"decentral_worker_{worker}.pt"


class Saving:
    """One checkpoint being written by all workers.

    A complete one of the same name is put aside first, and comes back where this one fails.

    Args:
        plugin: the plugin.
        folder: where the checkpoint will lie.
        gather: gives the value of every worker. Collective.
    """

    def __init__(self, plugin: DecentralizedPlugin, folder: Path, gather: Gather) -> None:
        self._plugin = plugin
        self._folder = folder
        self._gather = gather
        self._former = folder.with_name(f".{folder.name}.former")
        self._first = plugin.accelerator.process_index == 0
        self._token = uuid.uuid4().hex

    def write(self, parts: Callable[[], None]) -> None:
        """Write all parts on every worker, then the manifest. Collective.

        Args:
            parts: writes this worker's part.

        Raises:
            CheckpointError: on every worker, where one could not write; the former checkpoint is back.
        """

        def refusal(problems: dict[int, str]) -> Exception:
            if self._first:
                self._restore()
            return not_saved(str(self._folder), problems)

        self._token = self._gather(self._token)[0]
        agreed(self._gather, self._put_aside, refusal)
        agreed(self._gather, parts, refusal)
        keeper, fine = self._keeps(), self._finite()
        agreed(self._gather, lambda: self._commit(fine) if keeper else None, refusal)

    def _put_aside(self) -> None:
        if self._first:
            if not self._former.exists() and (self._folder / MANIFEST).is_file():
                self._folder.rename(self._former)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
            (self._folder / self._token).touch()

    def _restore(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._former.exists():
            self._former.rename(self._folder)

    def _keeps(self) -> bool:
        """Whether this worker writes the manifest of its disk. Collective."""
        host, sees = socket.gethostname(), (self._folder / self._token).exists()
        blind = [k for k, (name, seen) in enumerate(self._gather((host, sees))) if name == host and not seen]
        me: int = self._plugin.accelerator.process_index
        return self._first or me == min(blind, default=-1)

    def _finite(self) -> bool:
        """Whether the trained weights of all workers are finite, and so their mean. Collective."""
        models = snapshot.models_of(self._plugin.accelerator)
        own = finite([p for model in models for p in model.parameters() if p.requires_grad])
        broken = [k for k, each in enumerate(self._gather(own)) if not each]
        if broken and self._first:
            logger.warning(
                "%s holds weights that are not finite, of workers %s; the last finite checkpoint stays, "
                "whatever save_total_limit is", self._folder, broken,
            )  # fmt: skip
        return not broken

    def _commit(self, fine: bool) -> None:
        (self._folder / self._token).unlink(missing_ok=True)
        files = sorted(path for path in self._folder.rglob("*") if path.is_file())
        names = [path.relative_to(self._folder).as_posix() for path in files]
        content = {
            "version": 1,
            "workers": self._plugin.workers,
            "topology": self._plugin.topology,
            "averaging": self._plugin.averaging,
            "token": self._token,
            "finite": fine,
            "files": {name: path.stat().st_size for name, path in zip(names, files, strict=True)},
            "crc32": {name: checksum(path) for name, path in zip(names, files, strict=True)},
        }
        aside = self._folder / f".{MANIFEST}"
        aside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(aside, self._folder / MANIFEST)
        shutil.rmtree(self._former, ignore_errors=True)


def rotate(output: str, limit: int | None, best: str | None) -> None:
    """Delete the oldest checkpoints, as the Trainer does, but never the last one with finite weights.

    Args:
        output: the folder of checkpoints.
        limit: how many to keep; None or 0 for all. The last one, the best one and the last finite one stay.
        best: the best one, if there is one.
    """
    if limit is None or limit <= 0:
        return
    found = sort_checkpoints(output, use_mtime=True)
    sound = [path for path in found if read_manifest(Path(path)).get("finite")]
    kept = {*found[-1:], *sound[-1:], *([str(Path(best))] if best else ())}
    old = [path for path in found if path not in kept]
    for path in old[: max(0, len(found) - limit)]:
        shutil.rmtree(path, ignore_errors=True)


def own_state(plugin: DecentralizedPlugin, scheduler: Any) -> dict[str, Any]:
    """What this worker has of its own: of the model, all but the frozen weights.

    Those are the same on every worker, and in the consensus (or, under an adapter, in the base model): with
    an adapter, the file has its size and not that of the model.
    """
    scaler = plugin.accelerator.scaler
    state = snapshot.replica(plugin.accelerator)
    frozen = [snapshot.frozen(model) for model in snapshot.models_of(plugin.accelerator)]
    pairs = list(zip(state["models"], frozen, strict=True))
    return {
        **state,
        "models": [{n: v for n, v in values.items() if n not in names} for values, names in pairs],
        "frozen": [sorted(names) for names in frozen],
        "scheduler": scheduler.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
    }


def choose(plugin: DecentralizedPlugin, output: str, wanted: str | bool) -> str | None:
    """The checkpoint to resume from, seen to be whole on every worker. Collective.

    Args:
        plugin: the plugin.
        output: the output folder, whose last complete checkpoint ``True`` stands for.
        wanted: a folder, or True.

    Returns:
        The folder; a stock one where it holds no state of workers.

    Raises:
        CheckpointError: on every worker, where one cannot read its part.
        SettingsError: True, and there is no complete checkpoint.
    """
    folder = _last(plugin, Path(output)) if wanted is True else Path(str(wanted)).expanduser()
    first = plugin.accelerator.is_local_main_process

    def look() -> None:
        if not folder.is_dir():
            raise Unfit(not_there(str(folder)))
        manifest = read_manifest(folder)
        if not manifest and not any(folder.glob("decentral_worker_*.pt")):
            return  # transformers' own, from a run with All-Reduce
        own = _file_of(manifest, plugin)
        check(
            folder,
            needed=lambda name: name == own or not name.startswith("decentral_"),
            summed=lambda name: name == own or (first and not name.startswith("decentral_")),
        )

    agreed(plugin.gather, look, lambda problems: not_loaded(str(folder), problems))
    return str(folder)


def checkpoints(output: Path) -> dict[int, Path]:
    """A Trainer's checkpoint folders by step, the earliest first; complete or not."""
    found = ((_STEP.fullmatch(path.name), path) for path in output.glob("checkpoint-*") if path.is_dir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def _last(plugin: DecentralizedPlugin, output: Path) -> Path:
    folders = list(checkpoints(output).values())
    if not any(plugin.gather(any(any(path.glob("decentral*")) for path in folders))):
        if not folders:
            raise no_whole_checkpoint(str(output))
        return folders[-1]
    chosen = last_common(folders, plugin.gather)
    if chosen is None:
        raise no_whole_checkpoint(str(output))
    if folders[-1] != chosen and plugin.accelerator.is_main_process:
        logger.warning("%s is not complete on every worker; going on from %s", folders[-1], chosen)
    return chosen


def holds_workers(checkpoint: str | Path | None) -> bool:
    """True where a checkpoint holds the state of every worker, not a consensus alone."""
    files = read_manifest(Path(checkpoint)).get("files", {}) if checkpoint is not None else {}
    return any(name.startswith("decentral_worker_") for name in files)


def _file_of(manifest: dict[str, Any], plugin: DecentralizedPlugin) -> str:
    """What this worker reads: its own file; where there were more or fewer workers, any that lies here."""
    if manifest.get("workers") == plugin.workers:
        return worker_name(plugin.accelerator.process_index)
    here = [name for name in manifest.get("files", {}) if name.startswith("decentral_worker_")]
    return min(here, default=worker_name(0))


def load(plugin: DecentralizedPlugin, folder: Path, scheduler: Any) -> None:
    """Go on with what every worker saved. Collective.

    With another number of workers, every worker goes on from the consensus (which the Trainer has loaded)
    with new moments, and a warning says so.

    Raises:
        CheckpointError: on every worker, where one has a file that does not fit this run.
    """
    manifest = read_manifest(folder)
    same = manifest["workers"] == plugin.workers

    def read() -> dict[str, Any]:
        found: dict[str, Any] = load_plain(folder / _file_of(manifest, plugin), map_location="cpu")
        _fits(plugin, found)
        return found

    def refusal(problems: dict[int, str]) -> Exception:
        return not_loaded(str(folder), problems)

    state = agreed(plugin.gather, read, refusal)
    plugin.resume(state["optimizers"], same)

    def put() -> None:
        if same:
            snapshot.put_replica(plugin.accelerator, plugin.handles, state)
        else:
            consensus = [snapshot.own_memory(m.state_dict()) for m in snapshot.models_of(plugin.accelerator)]
            snapshot.restart(plugin.accelerator, plugin.handles, consensus, state)
        scheduler.load_state_dict(state["scheduler"])
        scaler = plugin.accelerator.scaler
        if scaler is not None and state["scaler"]:
            scaler.load_state_dict(state["scaler"])

    agreed(plugin.gather, put, refusal)
    if plugin.accelerator.is_main_process:
        if not same:
            logger.warning(
                "%s was written by %d workers and is loaded by %d: every worker starts from the consensus "
                "with new moments; random numbers start anew", folder, manifest["workers"], plugin.workers,
            )  # fmt: skip
        if manifest["topology"] != plugin.topology:
            logger.warning("%s was on %s, this run is on %s", folder, manifest["topology"], plugin.topology)


def _fits(plugin: DecentralizedPlugin, state: dict[str, Any]) -> None:
    """See that a worker's file is one of this model."""
    models = snapshot.models_of(plugin.accelerator)
    left_out = state.get("frozen", [()] * len(models))
    for model, values, absent in zip(models, state["models"], map(set, left_out), strict=True):
        for name, tensor in model.state_dict().items():
            if name in absent or not isinstance(tensor, torch.Tensor):
                continue
            found = values.get(name)
            if found is None or found.shape != tensor.shape:
                was = "not there" if found is None else str(list(found.shape))
                raise Unfit(other_run(name, was, str(list(tensor.shape))))
