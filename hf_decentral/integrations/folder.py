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
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hf_decentral.errors import DecentralizedError
from hf_decentral.errors.checkpoint import (
    Unfit,
    altered_file,
    is_a_file,
    missing_file,
    no_checkpoint,
    not_saved,
    truncated_file,
)

MANIFEST = "decentral.json"
Gather = Callable[[Any], list[Any]]
T = TypeVar("T")


def agreed(gather: Gather, action: Callable[[], T], refusal: Callable[[dict[int, str]], Exception]) -> T:
    """Do something on every worker; where it fails on one, none goes on. Collective.

    Args:
        gather: gives the value of every worker. Collective.
        action: what is done.
        refusal: makes an error of the workers' problems; that error is raised on every worker.

    Returns:
        What the action returned.
    """
    problem, cause, result = None, None, None
    try:
        result = action()
    except Exception as error:  # whatever it is, the others must hear of it instead of waiting for ever
        problem, cause = told(error), error
    problems = {k: text for k, text in enumerate(gather(problem)) if text is not None}
    if problems:
        raise refusal(problems) from cause
    return result  # type: ignore[return-value]


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
        self.token = ""

    def open(self) -> None:
        """Make an empty folder on every disk. Collective.

        Raises:
            CheckpointError: somewhere it cannot be made.
        """
        self.token = token = str(self._gather(uuid.uuid4().hex)[0])
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
        """After a kill in the middle of :meth:`commit`: put the former checkpoint back, or finish.

        Hosts that share the disk may do so at the same time; each then finds a part of it done.
        """
        if self._old.exists():
            if not self.target.exists():
                with suppress(FileNotFoundError):
                    self._old.rename(self.target)
            self._keep_foreign()

    def together(self, action: Callable[[], Any]) -> None:
        """Do something on every worker; where it fails on one, none goes on. Collective.

        Raises:
            CheckpointError: on every worker, naming those where it failed.
        """
        try:
            agreed(self._gather, action, lambda problems: not_saved(str(self.target), problems))
        except DecentralizedError:
            if self.keeper:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def commit(self, about: dict[str, Any]) -> None:
        """Write the manifest and put the folder in its place.

        The manifest has the save's token, which tells it from any other save, and what a later reader needs
        to know that a file is the one that was written.
        """
        if not self.keeper:
            return
        files = sorted(p for p in self.path.rglob("*") if p.is_file())
        listed = {p.relative_to(self.path).as_posix(): p.stat().st_size for p in files}
        sums = {name: checksum(self.path / name) for name in listed}
        manifest = self.path / MANIFEST
        content = {**about, "token": self.token, "files": listed, "crc32": sums}
        manifest.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
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
        others: list[Path] = []
        with suppress(FileNotFoundError):  # another host may be doing the same
            others = sorted(p for p in self._old.rglob("*") if p.is_file())
        for path in others:
            name = path.relative_to(self._old)
            there = self.target / name
            if name.as_posix() not in ours and name.as_posix() != MANIFEST and not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    path.rename(there)
        while self._old.exists():
            with suppress(FileNotFoundError):
                shutil.rmtree(self._old)


def _to_disk(path: Path) -> None:
    """See that a power cut after the rename cannot leave an empty file behind."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks cannot
            os.fsync(handle)
    finally:
        os.close(handle)


def told(error: Exception) -> str:
    """An error as one line."""
    text = " ".join(str(error).split())
    if isinstance(error, Unfit):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a folder says; empty where there is none that can be read."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def checksum(path: Path) -> int:
    """CRC-32 of a file, read piece by piece."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            value = zlib.crc32(piece, value)
    return value


def check(folder: Path, needed: Callable[[str], bool], summed: Callable[[str], bool]) -> dict[str, Any]:
    """See that a folder is a complete checkpoint.

    Args:
        folder: the folder.
        needed: whether this worker needs the file of that name to be here.
        summed: whether this worker looks at each byte of that file.

    Returns:
        The manifest.

    Raises:
        Unfit: a file is missing, or not as it was written.
    """
    manifest = read_manifest(folder)
    if not manifest:
        raise Unfit(no_checkpoint(str(folder)))
    sums = manifest.get("crc32", {})  # folders from before there were any have none
    for name, size in manifest.get("files", {}).items():
        path = folder / name
        if not path.is_file():
            if needed(name):
                raise Unfit(missing_file(name))
        elif path.stat().st_size != size:
            raise Unfit(truncated_file(name, path.stat().st_size, size))
        elif name in sums and summed(name) and checksum(path) != sums[name]:
            raise Unfit(altered_file(name))
    return manifest
