"""What the tests of shaped hosts share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

shaped = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"), reason="needs root and iproute2"
)


def left_by(pid: int | None = None) -> list[str]:
    """Namespaces and devices that benchmarks made (or that process) and that are still there."""
    prefix = "hfd" if pid is None else f"hfd{pid}"
    folders = [folder for folder in (Path("/run/netns"), Path("/sys/class/net")) if folder.is_dir()]
    return [
        name
        for folder in folders
        for name in os.listdir(folder)
        if name.startswith(prefix) and (pid is None or not name[len(prefix)].isdigit())
    ]
