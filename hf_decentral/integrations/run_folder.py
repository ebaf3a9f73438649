"""The output folder of a training script: its settings, its metrics, its checkpoints."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from hf_decentral.errors import CheckpointError, DecentralizedError, runs
from hf_decentral.integrations.folder import agreed
from hf_decentral.integrations.numbering import last_common
from hf_decentral.integrations.plugin import DecentralizedPlugin

KEPT = 2
_OPTIMIZER_S_OWN = ("initial_lr", "betas", "momentum", "weight_decay", "accum", "horizon")
# What `load` tells of, since the optimizer keeps its own; and what has no bearing on the training.
_NOT_TOLD = {*_OPTIMIZER_S_OWN, "lr", "beta1", "beta2", "resume", "output_dir", "report_to"}
logger = logging.getLogger(__name__)


def hyperparameters(optimizer: Optimizer) -> dict[str, Any]:
    """The settings that an optimizer trains with, whatever a script was told."""
    group = optimizer.param_groups[0]
    return {name: group[name] for name in _OPTIMIZER_S_OWN if name in group}


class RunFolder:
    """A folder with ``settings.json``, ``metrics.jsonl`` and ``checkpoints/step_00000100``.

    Hosts may share it; where they do not, each has the checkpoints of its own workers.

    Args:
        plugin: attached to the run's Accelerator, so that ``save_state`` writes a folder aside and renames
            it when every worker has written.
        output: the folder.
        settings: the settings of this run.
        resume: whether the run goes on from a checkpoint that lies there.
        fixed: names of the settings that may not change when a run goes on.

    Raises:
        CheckpointError: on every worker: there are checkpoints which the run would write over; or the run
            shall go on, and there are none, or they are those of another run; or there can be no folder.
    """

    def __init__(
        self,
        plugin: DecentralizedPlugin,
        output: str,
        settings: Mapping[str, Any],
        *,
        resume: bool,
        fixed: Iterable[str] = (),
    ) -> None:
        self.plugin, self.accelerator, self.output = plugin, plugin.accelerator, Path(output)
        self._folder = self.output / "checkpoints"
        try:
            agreed(
                plugin.gather,
                lambda: self._begin(settings, resume, fixed),
                lambda problems: runs.no_folder(self.output, problems),
            )
        except CheckpointError as error:
            if isinstance(error.__cause__, DecentralizedError):
                raise error.__cause__ from None  # this worker's own words are clearer
            raise

    def _begin(self, settings: Mapping[str, Any], resume: bool, fixed: Iterable[str]) -> None:
        found = self.checkpoints()
        if found and not resume:
            raise runs.checkpoint_exists(self._folder)
        if resume and not found:
            raise runs.nothing_to_resume(self._folder)
        if resume:
            self._check_same(settings, fixed)
        elif self.accelerator.is_local_main_process:  # of each host: they may not share the folder
            self.output.mkdir(parents=True, exist_ok=True)
            self.write("settings.json", settings)

    def _check_same(self, settings: Mapping[str, Any], fixed: Iterable[str]) -> None:
        before = runs.read_state(self.output / "settings.json")
        differing = {n: (before.get(n), settings[n]) for n in fixed if before.get(n) != settings[n]}
        if differing:
            raise runs.other_run(self._folder, differing)
        for name, value in settings.items():
            changed = name in before and before[name] != value
            if changed and name not in _NOT_TOLD and self.accelerator.is_main_process:
                logger.warning("%s is %s from here on; the run began with %s", name, value, before[name])

    def checkpoints(self) -> list[Path]:
        """The complete checkpoints, oldest first; the manifest is what is written last into one."""
        return sorted(path.parent for path in self._folder.glob("step_*[0-9]/decentral.json"))

    def save(self, step: int) -> None:
        """Save every worker's replica and registered objects; the last two checkpoints stay. Collective.

        Raises:
            CheckpointError: on every worker, where one could not write; the checkpoints before are kept.
        """
        self.accelerator.save_state(str(self._folder / f"step_{step:08d}"))
        if self.accelerator.is_local_main_process:
            for old in self.checkpoints()[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)

    def load(self, optimizer: Optimizer) -> None:
        """Load the last checkpoint that all workers have. Collective.

        The optimizer goes on with the settings that it was saved with; worker 0 warns of each that the
        script would have set otherwise.

        Raises:
            CheckpointError: on every worker, where one cannot read its part; nothing is changed.
        """
        asked = hyperparameters(optimizer)
        last = last_common(self.checkpoints(), self.plugin.gather)
        if last is None:
            raise runs.nothing_in_common(self._folder)
        self.accelerator.load_state(str(last))
        for name, kept in hyperparameters(optimizer).items():
            if name in asked and asked[name] != kept and self.accelerator.is_main_process:
                logger.warning(
                    "%s=%s was asked for; the run goes on with %s, as saved", name, asked[name], kept
                )

    def begin_log(self, step: int) -> None:
        """Begin metrics.jsonl: of an earlier run the lines up to ``step`` stay, the others come again."""
        if self.accelerator.is_main_process:
            path = self.output / "metrics.jsonl"
            text = path.read_text(encoding="utf-8", errors="replace") if step and path.exists() else ""
            self._replace(path, "".join(f"{line}\n" for line in text.splitlines() if _step_of(line) <= step))

    def log(self, line: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl (worker 0 only), and hand it to the Accelerator's trackers."""
        if self.accelerator.is_main_process:
            with (self.output / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(_finite(line), allow_nan=False) + "\n")
        self.accelerator.log({name: value for name, value in line.items() if name != "step"}, line["step"])

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a small JSON file, whole or not at all. Numbers that are not finite become null."""
        text = json.dumps(_finite(content), indent=2, allow_nan=False)
        self._replace(self.output / name, text + "\n")

    def _replace(self, path: Path, text: str) -> None:
        # Hosts that share the folder may write at the same time, so each has an aside of its own.
        aside = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
        try:
            aside.write_text(text, encoding="utf-8")
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise


def _step_of(line: str) -> float:
    """The step of a line of metrics.jsonl; infinite for one that a kill left torn."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _finite(value: Any) -> Any:
    """The value with None for each number that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
