"""A checkpoint as a folder: written aside, listed in a manifest, then renamed into its place.

Until the rename the former checkpoint of that name is untouched, so that a full disk or a killed process
costs the new one only.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hf_decentral.errors.checkpoint import is_a_file, missing_file, no_checkpoint, not_saved, truncated_file

MANIFEST = "decentral.json"
Gather = Callable[[Any], list[Any]]


class Aside:
    """The place beside a checkpoint where all workers write the next one.

    Hosts that do not share the disk each get a folder of their own; the first worker of each is its keeper.

    Args:
        target: where the checkpoint will lie.
        worker: number of this worker.
        gather: gives the value of every worker. Collective.
    """

    def __init__(self, target: Path, worker: int, gather: Gather) -> None:
        self.target = target
        self.path = target.parent / f".{target.name}.new"
        self._old = target.parent / f".{target.name}.old"
        self._worker = worker
        self._gather = gather
        self.keeper = worker == 0

    def open(self) -> None:
        """Make an empty folder on every disk. Collective.

        Raises:
            CheckpointError: somewhere it cannot be made.
        """
        token = self._gather(uuid.uuid4().hex)[0]
        self.together(lambda: self._make(token) if self.keeper else None)
        sees = self._gather((socket.gethostname(), (self.path / token).exists()))
        blind = [host for host, there in sees if not there]
        if blind:
            host, there = sees[self._worker]
            first = next(k for k, seen in enumerate(sees) if seen == (host, False)) if not there else -1
            self.keeper = self.keeper or first == self._worker
            self.together(lambda: self._make(token) if first == self._worker else None)
        self.together(lambda: (self.path / token).unlink() if self.keeper else None)

    def _make(self, token: str) -> None:
        if self.target.exists() and not self.target.is_dir():
            raise OSError(is_a_file(str(self.target)))
        self.recover()
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        (self.path / token).touch()

    def recover(self) -> None:
        """After a kill in the middle of :meth:`commit`: put the former checkpoint back, or finish."""
        if self._old.exists():
            if self.target.exists():
                self._keep_foreign()
            else:
                self._old.rename(self.target)

    def together(self, action: Callable[[], Any]) -> None:
        """Do something on every worker; where it fails on one, none goes on. Collective.

        Raises:
            CheckpointError: on every worker, naming those where it failed.
        """
        problem, cause = None, None
        try:
            action()
        except Exception as error:  # whatever it is, the others must hear of it instead of waiting for ever
            problem, cause = told(error), error
        problems = {k: text for k, text in enumerate(self._gather(problem)) if text is not None}
        if problems:
            if self.keeper:
                shutil.rmtree(self.path, ignore_errors=True)
            raise not_saved(str(self.target), problems) from cause

    def commit(self, about: dict[str, Any]) -> None:
        """Write the manifest and put the folder in its place."""
        if not self.keeper:
            return
        files = sorted(p for p in self.path.rglob("*") if p.is_file())
        listed = {p.relative_to(self.path).as_posix(): p.stat().st_size for p in files}
        manifest = self.path / MANIFEST
        manifest.write_text(json.dumps({**about, "files": listed}, indent=1) + "\n", encoding="utf-8")
        for path in (*files, manifest):
            _to_disk(path)
        if self.target.exists():
            self.target.rename(self._old)
        self.path.rename(self.target)
        _to_disk(self.target.parent)
        self._keep_foreign()

    def _keep_foreign(self) -> None:
        """Carry over what others had put into the former folder, then delete that."""
        if not self._old.exists():
            return
        ours = read_manifest(self._old).get("files", {})
        for path in sorted(p for p in self._old.rglob("*") if p.is_file()):
            name = path.relative_to(self._old)
            there = self.target / name
            if name.as_posix() not in ours and name.as_posix() != MANIFEST and not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                path.rename(there)
        shutil.rmtree(self._old)


def _to_disk(path: Path) -> None:
    """See that a power cut after the rename cannot leave an empty file behind."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some network disks cannot
    finally:
        os.close(handle)


def told(error: Exception) -> str:
    """An error as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a folder says; empty where there is none that can be read."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def problem_with(folder: Path, needed: Callable[[str], bool]) -> str | None:
    """Why a folder is no complete checkpoint, or None.

    Args:
        folder: the folder.
        needed: whether this worker needs the file of that name to be here.
    """
    manifest = read_manifest(folder)
    if not manifest:
        return no_checkpoint(str(folder))
    for name, size in manifest.get("files", {}).items():
        path = folder / name
        if not path.is_file():
            if needed(name):
                return missing_file(name)
        elif path.stat().st_size != size:
            return truncated_file(name, path.stat().st_size, size)
    return None
