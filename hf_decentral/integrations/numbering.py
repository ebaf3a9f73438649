"""Checkpoints with numbers: which is next, and which is the last that all workers have."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from hf_decentral.integrations.folder import MANIFEST, Gather, read_manifest

_NUMBERED = re.compile(r"checkpoint_(\d+)")


def number_of(folder: Path) -> int | None:
    """The number in the name of a folder, or None."""
    match = _NUMBERED.fullmatch(folder.name)
    return None if match is None else int(match[1])


def numbered(parent: Path) -> list[Path]:
    """The numbered folders, oldest first."""
    found = [(number_of(path), path) for path in parent.glob("checkpoint_*")]
    return [path for _, path in sorted((number, path) for number, path in found if number is not None)]


def next_number(parent: Path, wanted: int, gather: Gather) -> int:
    """The wanted number, or the first after every folder that some worker sees. Collective."""
    there = [number_of(path) or 0 for path in numbered(parent)[-1:]]
    return int(max(gather(max([wanted, *(number + 1 for number in there)]))))


def last_common(folders: Sequence[Path], gather: Gather) -> Path | None:
    """The last complete checkpoint that every worker has, of one and the same save. Collective.

    Hosts that share no disk may have stopped at different ones.

    Args:
        folders: this worker's, oldest first.
        gather: gives the value of every worker. Collective.

    Returns:
        This worker's folder of it; None: there is none.
    """
    own = {
        (path.name, read_manifest(path).get("token")): path for path in folders if (path / MANIFEST).is_file()
    }
    common = set.intersection(*(set(found) for found in gather(list(own))))
    return next((path for key, path in reversed(own.items()) if key in common), None)


def delete_oldest(parent: Path, limit: int | None, keep: Path) -> None:
    """Keep the last ones, ``limit`` of them; to be called when the new one is complete."""
    if limit is not None:
        others = [path for path in numbered(parent) if path != keep]
        for path in others[: max(0, len(others) + 1 - limit)]:
            shutil.rmtree(path, ignore_errors=True)
