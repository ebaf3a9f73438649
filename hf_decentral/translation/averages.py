"""The mean of several checkpoints' weights, which often translates better than the last one alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hf_decentral.errors import translation as errors

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Average the weights of checkpoints of one model, one tensor after the other.

    Args:
        folders: checkpoints as ``save_pretrained`` or a Trainer writes them, whole or in parts (safetensors).

    Returns:
        Each saved weight's mean, summed in float32 (float64 stays float64) and given in the type it was saved
        in; integers are the last folder's. A tied weight is saved once, so load it with ``strict=False``.

    Raises:
        CheckpointError: no folder, one without weights, a damaged file, or weights of another model.
    """
    if not folders:
        raise errors.nothing_to_average()
    paths = [Path(folder).expanduser() for folder in folders]
    with contextlib.ExitStack() as stack:
        saved = [_opened(path, stack) for path in paths]
        for path, tensors in zip(paths, saved, strict=True):
            unlike = sorted(
                name
                for name in tensors.keys() | saved[0].keys()
                if name not in tensors
                or name not in saved[0]
                or _shape(tensors, name) != _shape(saved[0], name)
            )
            if unlike:
                raise errors.other_weights(path, paths[0], unlike)
        return {name: _mean([tensors[name].get_tensor(name) for tensors in saved]) for name in saved[0]}


def _mean(tensors: list[torch.Tensor]) -> torch.Tensor:
    last = tensors[-1]
    if not last.is_floating_point():
        return last
    total = torch.zeros(last.shape, dtype=torch.promote_types(last.dtype, torch.float32))
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(last.dtype)


def _shape(tensors: dict[str, Any], name: str) -> list[int]:
    return list(tensors[name].get_slice(name).get_shape())


def _opened(folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Name of each weight to the open file that holds it."""
    import safetensors

    try:
        if (folder / INDEX).exists():
            names = sorted(
                set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
            )
        elif (folder / WHOLE).exists():
            names = [WHOLE]
        else:
            raise errors.no_weights(folder, "it holds none")
        files = [stack.enter_context(safetensors.safe_open(folder / name, framework="pt")) for name in names]
        return {weight: file for file in files for weight in file.keys()}  # noqa: SIM118, it is no dict
    except (OSError, ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise errors.no_weights(folder, str(error)) from error
