"""Where the settings of a run come from, and what happens to those that cannot be meant."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_decentral.errors import SettingsError
from hf_decentral.integrations import hosts, launch
from hf_decentral.integrations.plugin import DecentralizedPlugin
from hf_decentral.integrations.settings import NAMES, resolve


def _file(path: Path, content: Any) -> str:
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_the_first_place_wins_field_by_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = {
        "mpirun_config": {"decentral_topology": "complete", "decentral_accum": 16, "decentral_order": "atc"}
    }
    monkeypatch.setattr(launch, "launcher_config", lambda: Path(_file(tmp_path / "l.yaml", launched)))
    named = _file(tmp_path / "n.yaml", {"topology": "complete", "accum": 8, "comm_timeout": 30})
    environment = {"DECENTRAL_CONFIG": named, "DECENTRAL_ACCUM": "2", "DECENTRAL_TOPOLOGY": "complete"}
    found = resolve({"topology": "ring", "accum": None}, environment)
    assert (found.topology, found.accum, found.comm_timeout, found.order) == ("ring", 2, 30.0, "atc")
    sources = dict(found.sources)
    assert sources["topology"] == "argument" and sources["accum"] == "environment"
    assert sources["comm_timeout"] == named and sources["order"].endswith("l.yaml")
    assert sources["horizon"] == "default" and tuple(sources) == NAMES
    assert f"comm_timeout=30.0 ({named})" in found.describe()


def test_defaults() -> None:
    found = resolve({}, {})
    assert (found.topology, found.accum, found.horizon, found.comm_timeout, found.hosts) == (
        ("aer", 4, "windows", 600.0, None)
    )


@pytest.mark.parametrize(
    "content",
    [
        {"decentral_topology": "ring", "anything": 1},
        {"mpirun_config": {"decentral_topology": "ring"}, "distributed_type": "MULTI_GPU"},
        {"topology": "ring"},
    ],
)
def test_the_named_file_may_be_any_of_three_kinds(tmp_path: Path, content: Any) -> None:
    assert resolve({}, {"DECENTRAL_CONFIG": _file(tmp_path / "c.yaml", content)}).topology == "ring"


def test_an_accelerate_file_without_our_keys_says_nothing(tmp_path: Path) -> None:
    content = {"distributed_type": "MULTI_GPU", "num_processes": 2}
    assert resolve({}, {"DECENTRAL_CONFIG": _file(tmp_path / "c.yaml", content)}).topology == "aer"


@pytest.mark.parametrize(
    ("explicit", "near"),
    [
        ({"topology": "rign"}, "id you mean 'ring'?"),
        ({"topology": "all-reduce"}, "id you mean 'allreduce'?"),
        ({"order": "awx"}, "id you mean 'awc'?"),
        ({"horizon": "window"}, "id you mean 'windows'?"),
        ({"averaging": "plane"}, "id you mean 'plain'?"),
        ({"accum": 0}, "1 or more"),
        ({"accum": "2.5"}, "1 or more"),
        ({"accum": True}, "1 or more"),
        ({"comm_timeout": -1}, "more than 0"),
        ({"comm_timeout": "soon"}, "more than 0"),
        ({"hosts": "4,x"}, "'4,4,2'"),
        ({"hosts": "4,0"}, "'4,4,2'"),
    ],
)
def test_values_that_cannot_be_meant(explicit: dict[str, Any], near: str) -> None:
    with pytest.raises(SettingsError, match=near.replace("?", r"\?")):
        resolve(explicit, {})


def test_unknown_names_in_files_and_the_environment(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="id you mean 'decentral_topology'"):
        resolve({}, {"DECENTRAL_TOPOLGY": "ring"})
    for content, near in (
        ({"decentral_topolgy": "ring"}, "decentral_topology"),
        ({"mpirun_config": {"decentral_acum": 2}}, "decentral_accum"),
        ({"topolgy": "ring"}, "topology"),
    ):
        with pytest.raises(SettingsError, match=f"id you mean '{near}'"):
            resolve({}, {"DECENTRAL_CONFIG": _file(tmp_path / "c.yaml", content)})


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "\x00\x01"])
def test_files_that_hold_no_settings(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match="DECENTRAL_CONFIG"):
        resolve({}, {"DECENTRAL_CONFIG": str(path)})
    with pytest.raises(SettingsError, match="DECENTRAL_CONFIG"):
        resolve({}, {"DECENTRAL_CONFIG": str(tmp_path / "missing.yaml")})


def test_hosts_are_counts_of_workers() -> None:
    assert hosts.numbers(hosts.parse("2, 1"), 3) == (0, 0, 1)
    assert hosts.parse([4, 4, 2]) == (4, 4, 2) and hosts.parse(3) == (3,)
    with pytest.raises(SettingsError, match="4 in all"):
        hosts.numbers((2, 1), 4)


@pytest.mark.parametrize(
    "words",
    [
        [
            "python",
            "/venv/bin/accelerate",
            "launch",
            "--config_file",
            "x.yaml",
            "train.py",
            "--config_file",
            "no.yaml",
        ],
        ["/venv/bin/accelerate", "launch", "--config_file=x.yaml", "train.py"],
        ["python", "-m", "accelerate.commands.launch", "--config-file", "x.yaml", "-m", "mine"],
        ["python", "/venv/bin/accelerate-launch", "--config_file", "x.yaml", "train.py"],
    ],
)
def test_the_launchers_command_line(words: list[str], tmp_path: Path) -> None:
    assert launch._is_launcher(words)
    assert launch._config_of(words, tmp_path) == tmp_path / "x.yaml"


@pytest.mark.parametrize("script", [["-m", "pkg.train"], ["train.py"], ["--num_processes", "2", "train"]])
def test_the_scripts_own_config_file_is_not_the_launchers(script: list[str], tmp_path: Path) -> None:
    own = ["accelerate", "launch", *script, "--config_file", "mine.yaml"]
    assert launch._config_of(own, tmp_path) != tmp_path / "mine.yaml"


@pytest.mark.parametrize(
    "words", [["python", "train.py"], ["torchrun", "train.py"], ["accelerate", "config"], []]
)
def test_other_parents_are_no_launcher(words: list[str]) -> None:
    assert not launch._is_launcher(words)


def test_the_size_of_a_bucket() -> None:
    assert resolve({}, {}).bucket_mb == 4
    assert resolve({}, {"DECENTRAL_BUCKET_MB": "0.5"}).bucket_mb == 0.5
    with pytest.raises(SettingsError, match="megabytes, more than 0"):
        resolve({"bucket_mb": 0}, {})


def test_an_argument_that_is_no_setting() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'bucket_mb'"):
        DecentralizedPlugin("ring", bucketmb=2)  # type: ignore[call-arg]


_SCRIPT = """
from hf_decentral.integrations.settings import resolve
print("FOUND", resolve({}).describe())
"""


@pytest.mark.processes
def test_a_launched_script_finds_the_launchers_file(tmp_path: Path) -> None:
    """Through the real launcher, which does not hand the name of its file on."""
    config = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "NO",
        "num_processes": 1,
        "use_cpu": True,
        "mpirun_config": {"decentral_topology": "ring", "decentral_hosts": "1"},
    }
    (tmp_path / "train.py").write_text(_SCRIPT)
    _file(tmp_path / "c.yaml", config)
    ran = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "c.yaml", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "topology=ring (" in ran.stdout and "hosts=1 (" in ran.stdout and "c.yaml" in ran.stdout
