"""What a calibration is told, well and badly."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from hf_decentral.bench.settings import Workload
from hf_decentral.calibration.settings import Settings, check_out, parse
from hf_decentral.errors import SettingsError


def test_the_script_stands_behind_two_dashes_with_its_own_flags():
    settings, script = parse(
        ["--seconds", "5", "--out", "a.json", "--", "train.py", "--seconds", "7", "--", "x"]
    )
    assert settings.seconds == 5.0 and settings.path == Path("a.json")
    assert script == ["train.py", "--seconds", "7", "--", "x"]
    assert parse(["--emulate-ms", "5"]) == (Settings(emulate_ms=5.0), [])


def test_the_workload_is_that_of_the_benchmark():
    settings, _ = parse(["--emulate-ms", "5", "--hosts", "3", "--slow-worker", "1", "--batch-size", "2"])
    bench = settings.benchmark()
    assert all(getattr(bench, each.name) == getattr(settings, each.name) for each in fields(Workload))
    assert (bench.emulate_ms, bench.hosts, bench.slow_worker, bench.batch_size) == (5.0, 3, 1, 2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seconds", "0"], "--seconds=0"),
        (["--seconds", "nan"], "--seconds=nan"),
        (["--sceonds", "5"], "'--seconds'"),
        (["--hosts", "0"], "--hosts=0"),
        (["--link", "25GB/s"], "25GB/s"),
        (["--slow_worker", "1"], "--emulate_ms"),
        (["--"], "Nothing stands behind"),
        (["--", "-m"], "Nothing stands behind"),
        (["--model", "gpt2-small", "--", "train.py"], "--model and a script"),
    ],
)
def test_what_cannot_be_meant(words: list[str], told: str):
    with pytest.raises(SettingsError) as caught:
        parse(words)
    assert told in str(caught.value)


def test_where_the_result_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    check_out(tmp_path / "cluster.json")
    with pytest.raises(SettingsError, match="no folder"):
        check_out(tmp_path / "missing" / "cluster.json")
    with pytest.raises(SettingsError, match="it is a folder"):
        check_out(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("GROUP_RANK", "1")  # another host writes nothing
    check_out(tmp_path / "missing" / "cluster.json")


def test_every_flag_is_explained():
    assert all(len(each.metadata["help"]) > 8 for each in fields(Settings))
