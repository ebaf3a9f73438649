"""A folder of finished runs, one file each, so that a simulation that was stopped can go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from hf_decentral.bench import report
from hf_decentral.cli.simulate_plan import file_name
from hf_decentral.errors.cli import not_writable


def plain(value: Any) -> Any:
    """A result as JSON has it: a number that is not finite becomes null, since JSON knows none."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


class Store:
    """Finished runs by what they depend on.

    Args:
        folder: where they are; made when it is needed.

    Raises:
        SettingsError: nothing can be written there.
    """

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        report.check_writable(self._runs / "run.json")

    def read(self, about: dict[str, Any]) -> dict[str, Any] | None:
        """What was kept of a run; None where nothing was, or where it is damaged."""
        try:
            kept = json.loads(self._path(about).read_text(encoding="utf-8"))
            run: dict[str, Any] | None = kept["run"] if kept["about"] == plain(about) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return run if isinstance(run, dict) else None

    def write(self, about: dict[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a finished run, whole or not at all; its checkpoint is of no more use.

        Returns:
            The run as :meth:`read` gives it.

        Raises:
            SettingsError: the file cannot be written.
        """
        kept: dict[str, Any] = plain(run)
        report.write_json(self._path(about), {"about": plain(about), "run": kept})
        self.forget(about)
        return kept

    def checkpoint(self, about: dict[str, Any]) -> Path:
        """Where the run may keep how far it is."""
        return self._runs / f"{file_name(about)}.checkpoint"

    def forget(self, about: dict[str, Any]) -> None:
        """Delete the checkpoint of a run.

        Raises:
            SettingsError: it cannot be deleted.
        """
        path = self.checkpoint(about)
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                with suppress(FileNotFoundError):
                    path.unlink()
        except OSError as error:
            raise not_writable(path, str(error)) from error

    def _path(self, about: dict[str, Any]) -> Path:
        return self._runs / f"{file_name(about)}.json"
