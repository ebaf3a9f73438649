"""The output folder of a training script: its settings, its metrics, its checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from hf_decentral.errors import runs

KEPT = 2


class RunFolder:
    """A folder with ``settings.json``, ``metrics.jsonl`` and ``checkpoints/step_00000100``.

    Hosts may share it; where they do not, each has the checkpoints of its own workers.

    Args:
        accelerator: the run's Accelerator; the plugin is attached already, so that ``save_state`` writes a
            folder aside and renames it when every worker has written.
        output: the folder.
        settings: the settings of this run.
        resume: whether the run goes on from a checkpoint that lies there.
        fixed: names of the settings that may not change when a run goes on.

    Raises:
        CheckpointError: there are checkpoints which the run would write over; or the run shall go on, and
            there are none, or they are those of another run.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        output: str,
        settings: Mapping[str, Any],
        *,
        resume: bool,
        fixed: Iterable[str] = (),
    ) -> None:
        self.accelerator, self.output = accelerator, Path(output)
        self._folder = self.output / "checkpoints"
        found = self.checkpoints()
        if found and not resume:
            raise runs.checkpoint_exists(self._folder)
        if resume and not found:
            raise runs.nothing_to_resume(self._folder)
        if resume:
            self._check_same(settings, fixed)
        elif accelerator.is_local_main_process:  # of each host: they may not share the folder
            self.output.mkdir(parents=True, exist_ok=True)
            self.write("settings.json", settings)

    def _check_same(self, settings: Mapping[str, Any], fixed: Iterable[str]) -> None:
        before = runs.read_state(self.output / "settings.json")
        differing = {n: (before.get(n), settings[n]) for n in fixed if before.get(n) != settings[n]}
        if differing:
            raise runs.other_run(self._folder, differing)

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

    def load(self) -> None:
        """Load the last checkpoint on every worker. Collective.

        Raises:
            CheckpointError: on every worker, where one cannot read its part; nothing is changed.
        """
        self.accelerator.load_state(str(self.checkpoints()[-1]))

    def begin_log(self, step: int) -> None:
        """Begin metrics.jsonl: of an earlier run the lines up to ``step`` stay, the others come again."""
        if self.accelerator.is_main_process:
            path = self.output / "metrics.jsonl"
            lines = path.read_text().splitlines(keepends=True) if step and path.exists() else []
            path.write_text("".join(line for line in lines if json.loads(line)["step"] <= step))

    def log(self, line: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl (worker 0 only)."""
        if self.accelerator.is_main_process:
            with (self.output / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a small JSON file, whole or not at all."""
        aside = self.output / f"{name}.partial"
        aside.write_text(json.dumps(content, indent=2) + "\n")
        os.replace(aside, self.output / name)
