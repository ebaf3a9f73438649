"""What all commands share: the two consoles, and a JSON file beside what a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hf_decentral.bench import report

console = Console()
"""For results."""

errors = Console(stderr=True, highlight=False)
"""For everything else."""

Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result there as JSON.", show_default=False),
]


def write_json(path: Path | None, content: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all; without a path do nothing.

    Raises:
        SettingsError: the file cannot be written.
    """
    if path is not None:
        report.write_json(path, content)
