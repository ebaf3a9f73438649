"""The output folder of a training script: complete checkpoints only, the last two kept, nothing written over."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from hf_decentral.errors import runs


class RunFolder:
    """Checkpoints ``output/checkpoints/step_00000100`` of all workers, in a folder that all hosts share.

    What ``accelerator.save_state`` writes is joined by each worker's place in its data and by ``run.json``.
    A checkpoint is written aside and renamed when every worker has written; a run that is killed meanwhile,
    or a disk that is full, leaves the one before as it was.

    Args:
        accelerator: the run's Accelerator; the plugin is attached already.
        output: the folder.
        resume: whether the run means to go on from checkpoints that lie there.

    Raises:
        CheckpointError: there are checkpoints and the run would write over them, or none to go on from.
        LaunchError: the workers see different folders.
    """

    def __init__(self, accelerator: Accelerator, output: str, resume: bool) -> None:
        self.accelerator, self.output = accelerator, Path(output)
        self._folder = self.output / "checkpoints"
        found = self.checkpoints()
        if found and not resume:
            raise runs.checkpoint_exists(self._folder)
        if resume and not found:
            raise runs.nothing_to_resume(self._folder)
        self._check_shared()

    def _check_shared(self) -> None:
        mark = self.output / ".running"
        if self.accelerator.is_main_process:
            self.output.mkdir(parents=True, exist_ok=True)
            mark.touch()
        self.accelerator.wait_for_everyone()
        shared = mark.exists()
        self.accelerator.wait_for_everyone()
        if not shared:
            raise runs.not_shared(self.output)
        if self.accelerator.is_main_process:
            mark.unlink(missing_ok=True)

    def checkpoints(self) -> list[Path]:
        """The complete checkpoints, oldest first: a folder gets its name when all of it is written."""
        return sorted(path.parent for path in self._folder.glob("step_*[0-9]/run.json"))

    def begin_log(self, step: int) -> None:
        """Begin metrics.jsonl; of an earlier run only the lines up to ``step`` stay, the others come again."""
        if self.accelerator.is_main_process:
            path = self.output / "metrics.jsonl"
            lines = path.read_text().splitlines(keepends=True) if step and path.exists() else []
            path.write_text("".join(line for line in lines if json.loads(line)["step"] <= step))

    def log(self, line: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl (worker 0 only)."""
        if self.accelerator.is_main_process:
            with (self.output / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")

    def save(self, step: int, data: Any, about: Mapping[str, Any]) -> None:
        """Save every worker's replica, and its place in its data. Collective.

        Args:
            step: optimizer steps taken.
            data: what this worker reads from; its ``state_dict()`` is saved as JSON.
            about: what else :meth:`load` shall give back, for example the run's settings.
        """
        final = self._folder / f"step_{step:08d}"
        aside = final.with_suffix(".partial")
        if self.accelerator.is_main_process:
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self.accelerator.save_state(str(aside))
        (aside / f"data_{self.accelerator.process_index}.json").write_text(json.dumps(data.state_dict()))
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            told = {"step": step, "workers": self.accelerator.num_processes, **about}
            (aside / "run.json").write_text(json.dumps(told))
            shutil.rmtree(final, ignore_errors=True)
            os.replace(aside, final)
            for old in self.checkpoints()[:-2]:
                shutil.rmtree(old, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def load(self, data: Any, settings: Mapping[str, Any], fixed: Iterable[str]) -> dict[str, Any]:
        """Load the last checkpoint on every worker, and give back what was saved about it. Collective.

        Args:
            data: goes on where this worker's data stopped.
            settings: the settings of this run.
            fixed: names of the settings that may not have changed (``about["settings"]`` holds the former ones).

        Raises:
            CheckpointError: it is damaged, or one of another run.
        """
        folder = self.checkpoints()[-1]
        about: dict[str, Any] = runs.read_state(folder / "run.json")
        before = about.get("settings", {})
        differing = {n: (before.get(n), settings[n]) for n in fixed if before.get(n) != settings[n]}
        if differing:
            raise runs.other_run(folder, differing)
        self.accelerator.load_state(str(folder))
        worker = self.accelerator.process_index % int(about["workers"])
        data.load_state_dict(runs.read_state(folder / f"data_{worker}.json"))
        return about
