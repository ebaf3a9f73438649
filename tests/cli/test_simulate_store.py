"""The folder of finished runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hf_decentral.cli.simulate_store import Store, plain
from hf_decentral.errors import SettingsError

ABOUT = {"algorithm": "dadam", "topology": "ring", "workers": 4, "seed": 0, "lr": 0.1}
RUN = {"loss": 1.5, "points": [{"step": 0, "loss": 2.0}]}


def test_what_is_written_is_read(tmp_path: Path):
    store = Store(tmp_path / "new" / "folder")
    assert store.read(ABOUT) is None
    assert store.write(ABOUT, RUN) == RUN
    assert Store(tmp_path / "new" / "folder").read(ABOUT) == RUN
    assert store.read({**ABOUT, "lr": 0.2}) is None


def test_a_checkpoint_goes_when_the_run_has_ended(tmp_path: Path):
    store = Store(tmp_path)
    store.checkpoint(ABOUT).write_text("half")
    store.write(ABOUT, RUN)
    assert not store.checkpoint(ABOUT).exists()
    store.checkpoint(ABOUT).mkdir()
    (store.checkpoint(ABOUT) / "part").write_text("half")
    store.forget(ABOUT)
    store.forget(ABOUT)  # nothing there is no fault
    assert not store.checkpoint(ABOUT).exists()


@pytest.mark.parametrize("text", ["", '{"about": ', "[]", '{"about": {}, "run": {}}', '{"run": {}}'])
def test_a_file_that_is_damaged_or_another_run_is_none(tmp_path: Path, text: str):
    store = Store(tmp_path)
    store.write(ABOUT, RUN)
    (file,) = (tmp_path / "runs").iterdir()
    file.write_text(text)
    assert store.read(ABOUT) is None


def test_json_has_no_nan():
    found = plain({"a": math.nan, "b": [math.inf, 1.0], "c": ({"d": -math.inf},), "e": "nan"})
    assert found == {"a": None, "b": [None, 1.0], "c": [{"d": None}], "e": "nan"}
    json.dumps(found, allow_nan=False)


def test_a_folder_that_cannot_be_one(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        Store(tmp_path / "file")
