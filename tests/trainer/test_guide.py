"""The Python of the Trainer's guide runs as it stands there, alone and with two workers."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from hf_decentral.trainer.arguments import OURS
from tests.processes import run
from tests.trainer.runs import settings

pytestmark = pytest.mark.processes
GUIDE = Path(__file__).parents[2] / "docs" / "trainer.md"


def _blocks(rank: int, folder: str) -> None:
    settings(folder)  # tells Accelerate of these processes
    os.chdir(folder)
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    exec(compile(code, str(GUIDE), "exec"), {})


@pytest.mark.parametrize("workers", [1, 2])
def test_the_blocks_of_the_guide_run(tmp_path: Path, workers: int) -> None:
    run(workers, _blocks, str(tmp_path))
    assert sorted(os.listdir(tmp_path / "out")) == ["checkpoint-2", "checkpoint-4", "model"]


def test_every_argument_of_ours_is_told_of() -> None:
    from hf_decentral.trainer import DecentralizedTrainingArguments

    told = GUIDE.read_text()
    assert set(OURS) < {field.name for field in dataclasses.fields(DecentralizedTrainingArguments)}
    for name in OURS:
        assert f"`--{name}`" in told
