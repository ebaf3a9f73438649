"""Folders that are made once: under a lock, written aside, renamed when complete."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from hf_decentral.errors.data import cache_unwritable


def root(cache_dir: str | None = None) -> Path:
    """The folder of all caches: the one given, or ``hf_decentral`` in the Hugging Face cache."""
    if cache_dir:
        return Path(cache_dir).expanduser()
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(home).expanduser() / "hf_decentral"


def key(**parts: object) -> str:
    """A short name that differs whenever one of the parts differs."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:20]


def once(folder: Path, build: Callable[[Path], None], complete: Callable[[Path], bool]) -> Path:
    """Give back ``folder``, built by whichever process comes first while the others wait for it.

    A file lock and no collective: building may take longer than any deadline of the process group, and
    an error in it is met by every process for itself. A process that dies gives its lock back.

    Args:
        folder: where the result lies.
        build: writes the result into the empty folder that it is given.
        complete: whether a folder found there can be used; if not, it is built again.

    Raises:
        DataError: where the cache cannot be written.
    """
    if complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(folder) + ".lock"):
            if complete(folder):
                return folder
            aside = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            try:
                build(aside)
                shutil.rmtree(folder, ignore_errors=True)
                os.replace(aside, folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise cache_unwritable(folder.parent, str(error)) from error
    return folder
