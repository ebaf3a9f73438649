"""Pictures: a figure without a screen, and its file. matplotlib is imported when the first is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hf_decentral.errors.cli import no_matplotlib, not_writable


def figure(width: float, height: float) -> Any:
    """An empty figure of so many inches.

    Raises:
        SettingsError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise no_matplotlib() from error
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def save(figure: Any, path: Path, kind: str | None = None) -> None:
    """Write a figure, in a folder that is made if there is none.

    Args:
        figure: of :func:`figure`.
        path: the file.
        kind: the format; None: what its ending says.

    Raises:
        SettingsError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120, format=kind)
    except (OSError, ValueError) as error:
        raise not_writable(path, str(error)) from error
