"""The Python of the guide runs as it stands there, alone and with two workers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.integrations.loops import accelerator
from tests.processes import run

pytestmark = pytest.mark.processes

_GUIDE = Path(__file__).parents[2] / "docs" / "accelerate.md"


def _blocks(rank: int, folder: str) -> None:
    accelerator()  # clears what another test has left, and joins these processes
    os.chdir(folder)
    code = "\n".join(re.findall(r"```python\n(.*?)```", _GUIDE.read_text(), re.DOTALL))
    exec(compile(code, str(_GUIDE), "exec"), {})


@pytest.mark.parametrize("workers", [1, 2])
def test_the_blocks_of_the_guide_run(tmp_path: Path, workers: int) -> None:
    run(workers, _blocks, str(tmp_path))
    assert sorted(os.listdir(tmp_path / "out")) == ["checkpoint", "model", "weights.pt"]
