"""How this process was started: the launcher's configuration file, and traps on the way."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml
from accelerate import Accelerator
from accelerate.utils import DistributedType

from hf_decentral.errors.launch import alone_in_a_world, sharded, unreadable_config

_WHOLE = (
    DistributedType.NO,
    DistributedType.MULTI_CPU,
    DistributedType.MULTI_GPU,
    DistributedType.MULTI_XPU,
    DistributedType.MULTI_NPU,
)
_BOTH = ("accelerate", "accelerate.exe")  # the program of all of Accelerate's commands


def read(path: Path, named_by: str) -> dict[str, Any]:
    """The mapping in a YAML or JSON file (JSON is YAML).

    Raises:
        SettingsError: the file is missing, unreadable, or holds something else.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable_config(str(path), str(error), named_by) from error
    except yaml.YAMLError as error:
        raise unreadable_config(str(path), f"no valid YAML: {error}", named_by) from error
    if not isinstance(content, dict):
        raise unreadable_config(str(path), f"it holds a {type(content).__name__}", named_by)
    return content


def launcher_config() -> Path | None:
    """The file with which ``accelerate launch`` started this process, or the user's default one.

    The launcher does not hand the name on, but it is a parent of every worker that it starts (not with
    mpirun, SLURM or a notebook; ``DECENTRAL_CONFIG=file`` works everywhere).
    """
    try:
        parents = psutil.Process().parents()
    except psutil.Error:
        return None
    for parent in parents:
        try:
            words, folder = parent.cmdline(), parent.cwd()
        except (psutil.Error, OSError):
            continue
        if _is_launcher(words):
            return _config_of(words, Path(folder))
    return None


def _is_launcher(words: Sequence[str]) -> bool:
    for k, word in enumerate(words[:5]):
        if _ends_launcher(word):
            both = Path(word).name in _BOTH or word == "accelerate.commands.accelerate_cli"
            return not both or words[k + 1 : k + 2] == ["launch"]
    return False


def _ends_launcher(word: str) -> bool:
    """Whether a word names the launcher, so that its flags follow."""
    return (
        Path(word).name in (*_BOTH, "accelerate-launch", "accelerate-launch.exe")
        or word in ("accelerate.commands.launch", "accelerate.commands.accelerate_cli")
        or word.replace("\\", "/").endswith("accelerate/commands/launch.py")
    )


def _config_of(words: Sequence[str], folder: Path) -> Path | None:
    """The launcher's ``--config_file``, or the default one; what follows the script is the script's own."""
    from accelerate.commands.launch import launch_command_parser

    begin = next((k for k, word in enumerate(words) if _ends_launcher(word)), 0) + 1
    begin += words[begin : begin + 1] == ["launch"]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            given = launch_command_parser().parse_known_args(list(words[begin:]))[0].config_file
    except SystemExit:  # the launcher itself would have refused this
        given = None
    if given:
        return folder / str(given)
    from accelerate.commands.config.config_args import default_config_file

    default = Path(default_config_file)
    return default if default.is_file() else None


def check_world(accelerator: Accelerator) -> None:
    """See that Accelerate knows of all the processes that the launcher started.

    Raises:
        LaunchError: it sees one process of several: a silent trap on machines without accelerator.
    """
    world = os.environ.get("WORLD_SIZE", "")
    if accelerator.num_processes == 1 and world.isdigit() and int(world) > 1:
        raise alone_in_a_world(world)


def is_sharded(accelerator: Accelerator) -> str:
    """What shards the parameters of this Accelerator, or nothing."""
    if accelerator.distributed_type not in _WHOLE:
        return str(accelerator.distributed_type.value)
    if getattr(accelerator, "parallelism_config", None) is not None:
        return "parallelism_config"
    return ""


def check_whole(accelerator: Accelerator) -> None:
    """See that every worker holds its whole model.

    Raises:
        LaunchError: DeepSpeed, FSDP, Megatron-LM, tensor parallelism or XLA.
    """
    kind = is_sharded(accelerator)
    if kind:
        raise sharded(kind)
