from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import pytest
from rich.console import Console

from hf_decentral.bench import report
from hf_decentral.errors import SettingsError

CASE = {
    "variant": "none", "step_seconds": 0.5, "low": 0.4, "high": 0.6, "ratio_to_ddp": None,
    "ratio_to_limit": 1.0, "ratio_to_compute": 1.0, "sent_bytes": 1e6, "waited_seconds": 0.0,
    "extra_memory_bytes": 0,
}  # fmt: skip
RESULT = {
    "what": "two hosts",
    "cases": [CASE, {**CASE, "variant": "ddp_tuned", "ratio_to_limit": 2.0, "bucket": "4mb"}],
    "left_out": {"decent_dp:aer": "It is not here."},
}


def printed(table: object) -> str:
    console = Console(file=io.StringIO(), width=110)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_table_tells_units_and_leaves_out_what_nobody_knows():
    told = printed(report.table(RESULT["cases"], "two hosts"))
    assert "500.0" in told and "1.00" in told
    assert "ddp_tuned (4mb)" in told
    assert "DDP / it" not in told  # there was no ddp
    assert "it / limit" in told


def test_what_was_left_out_is_told(capsys: pytest.CaptureFixture[str]):
    report.show(RESULT)
    assert "left out: decent_dp:aer\n  It is not here." in capsys.readouterr().out


def test_json_is_written_whole_or_not_at_all(tmp_path: Path):
    file = tmp_path / "deep" / "step.json"
    report.write_json(file, RESULT)
    assert json.loads(file.read_text()) == RESULT
    with pytest.raises(TypeError):
        report.write_json(file, {"cases": object()})
    assert json.loads(file.read_text()) == RESULT
    assert os.listdir(file.parent) == ["step.json"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*names: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.write_json(tmp_path / "step.json", RESULT)
    assert not os.listdir(tmp_path)


def test_a_place_that_takes_no_file(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "step.json"):
        with pytest.raises(SettingsError, match="cannot be written"):
            report.check_writable(path)


def test_the_plot_is_a_picture(tmp_path: Path):
    report.plot(tmp_path / "sub" / "step.png", RESULT)
    assert (tmp_path / "sub" / "step.png").read_bytes().startswith(b"\x89PNG")


def test_a_pipe_is_written_to_and_a_link_followed(tmp_path: Path) -> None:
    pipe, there, link = tmp_path / "pipe", tmp_path / "there.json", tmp_path / "link.json"
    os.mkfifo(pipe)
    link.symlink_to(there)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    report.check_writable(pipe)
    report.write_json(pipe, RESULT)
    reader.join()
    report.write_json(link, RESULT)
    assert json.loads(heard[0]) == json.loads(there.read_text()) == json.loads(json.dumps(RESULT))
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_folder_that_takes_no_file_is_seen_before_the_run() -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        report.check_writable(Path("/proc/step.json"))
