"""The result for people and for programs: a table, a file, a picture."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hf_decentral.bench import pictures
from hf_decentral.errors.cli import not_writable

COLUMNS = (
    ("step, ms", "step_seconds", 1e3, ".1f"),
    ("low", "low", 1e3, ".1f"),
    ("high", "high", 1e3, ".1f"),
    ("DDP / it", "ratio_to_ddp", 1, ".2f"),
    ("it / limit", "ratio_to_limit", 1, ".2f"),
    ("it / compute", "ratio_to_compute", 1, ".2f"),
    ("sent, MB", "sent_bytes", 1e-6, ".2f"),
    ("waited, ms", "waited_seconds", 1e3, ".1f"),
    ("hidden", "hidden_share", 1, ".2f"),
    ("extra, MB", "extra_memory_bytes", 1e-6, ".1f"),
    ("extra / parameters", "memory_above_local", 1, ".3f"),
)
"""Heading, key of a case, what it is multiplied by, how it is shown."""
_PAGE = 124  # characters of a line where it goes to a file


def table(cases: Sequence[Mapping[str, Any]], title: str) -> Table:
    """A row for each variant; columns of which no case tells are left out."""
    told = [column for column in COLUMNS if any(case.get(column[1]) is not None for case in cases)]
    made = Table(header_style="bold", title=title)
    made.add_column("variant", no_wrap=True)
    for heading, *_ in told:
        made.add_column(heading, justify="right", overflow="fold")
    for case in cases:
        name = case["variant"] + (f" ({case['bucket']})" if "bucket" in case else "")
        values = [(case.get(key), scale, how) for _, key, scale, how in told]
        made.add_row(name, *("" if v is None else f"{v * scale:{how}}" for v, scale, how in values))
    return made


def show(result: Mapping[str, Any]) -> None:
    """Print the table, and below it what was left out and why."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PAGE)
    console.print(table(result["cases"], result["what"]))
    for name, reason in result["left_out"].items():
        console.print(f"left out: {name}\n  {reason}", markup=False, soft_wrap=True)


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, as :func:`write_text` does.

    Raises:
        SettingsError: the file cannot be written.
    """
    write_text(path, json.dumps(result, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all; nothing else stays, whatever happens.

    A device or a pipe is written to, and a link is followed: none of them is replaced.

    Raises:
        SettingsError: the file cannot be written.
    """
    aside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path = path.resolve()
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        aside = path.with_name(f"{path.name}.{os.getpid()}.part")
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        raise not_writable(path, str(error)) from error
    finally:
        if aside is not None:
            with suppress(OSError):
                aside.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """See before a long run that its result can be written.

    Raises:
        SettingsError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise not_writable(path, "it is a folder")
        if path.is_file() or not path.exists():  # a device or a pipe needs no new file
            # Rights alone do not tell: some file systems take no new file from anybody.
            tempfile.TemporaryFile(dir=path.resolve().parent).close()
    except OSError as error:
        raise not_writable(path, str(error)) from error


def plot(path: Path, result: Mapping[str, Any]) -> None:
    """Draw a bar for each variant, its quartiles, the compute time and each one's limit.

    Raises:
        SettingsError: matplotlib is not installed, or the file cannot be written.
    """
    cases = result["cases"]
    figure = pictures.figure(8, 1.5 + 0.4 * len(cases))
    axes = figure.subplots()
    places = range(len(cases))
    times = [case["step_seconds"] for case in cases]
    spread = [[t - c["low"] for t, c in zip(times, cases, strict=True)],
              [c["high"] - t for t, c in zip(times, cases, strict=True)]]  # fmt: skip
    axes.barh(places, times, xerr=spread, color="C0", alpha=0.7, label="median, and quartiles")
    limits = [case["step_seconds"] / case["ratio_to_limit"] for case in cases]
    axes.scatter(limits, places, marker="|", s=250, color="C3", zorder=3, label="limit: compute or its bytes")
    axes.axvline(times[0], color="0.4", linewidth=0.8, linestyle="--", label="compute only")
    axes.set_yticks(places, [case["variant"] for case in cases])
    axes.invert_yaxis()
    axes.set(xlabel="seconds of a step", xlim=(0, None), title=result["what"])
    axes.legend(fontsize=8)
    pictures.save(figure, path, "png")
