"""``hf-decentral doctor`` finds what would break a run, and says how to mend it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hf_decentral.cli import checks, doctor
from hf_decentral.cli.checks import Check

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "accelerate_configs").glob("*.yaml"))


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("DECENTRAL_", "GLOO_"))}


def run_doctor(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hf_decentral.cli", "doctor", *words],
        env={**clean(), "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def only(found) -> Check:
    [check] = list(found)
    return check


def test_a_healthy_machine(tmp_path: Path):
    told = run_doctor("--json", str(tmp_path / "sub" / "doctor.json"), HF_HOME=str(tmp_path))
    written = json.loads((tmp_path / "sub" / "doctor.json").read_text())
    assert told.returncode == 0, told.stdout
    assert written["ok"] is True
    rows = {check["name"]: check for check in written["checks"]}
    assert {"torch", "backends", "world", "loopback", "shared memory", "settings", "exchange"} <= rows.keys()
    assert rows["exchange"]["status"] == "ok"
    assert all(check["fix"] for check in rows.values() if check["status"] != "ok")
    assert "topology=aer (default)" in rows["settings"]["found"]


def launched_doctor(path: Path, **environment: str) -> dict[str, dict[str, str]]:
    [config] = [path for path in CONFIGS if path.stem == "cpu_one_host"]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    subprocess.run(
        [*launcher, "-m", "hf_decentral.cli", "doctor", "--json", str(path)],
        env={**clean(), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        timeout=280,
    )
    return {check["name"]: check for check in json.loads(path.read_text())["checks"]}


def test_the_silent_trap_and_a_bad_setting_are_found_under_the_launcher(tmp_path: Path):
    rows = launched_doctor(tmp_path / "x.json", DECENTRAL_TOPOLOGY="rign")
    assert rows["world"]["status"] == "fail"
    assert "started 2 processes, Accelerate sees 1" in rows["world"]["found"]
    assert "ACCELERATE_USE_CPU" in rows["world"]["fix"]
    assert rows["settings"]["status"] == "fail"
    assert "'ring'" in rows["settings"]["found"]


def test_a_launch_that_is_well(tmp_path: Path):
    rows = launched_doctor(tmp_path / "x.json", ACCELERATE_USE_CPU="true")
    assert rows["world"]["found"] == "the launcher started 2 processes, Accelerate sees 2"
    assert rows["world"]["status"] == "ok"
    assert "cpu_one_host.yaml" in rows["settings"]["found"]


def test_a_result_that_cannot_be_written_is_told_without_a_traceback(tmp_path: Path):
    (tmp_path / "file").write_text("")
    told = run_doctor("--json", str(tmp_path / "file" / "x.json"))
    assert told.returncode == 2
    assert "cannot be written" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_our_launch_files_are_well(config: Path):
    assert only(checks.launch_file({}, config)).status == "ok"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("distributed_type: MULTI_CPU\nnum_processes: 4\n", "starts one"),
        ("distributed_type: MULTI_GPU\nnum_processes: 4\nuse_cpu: true\n", "starts one"),
        ("distributed_type: FSDP\nnum_processes: 4\n", "shards"),
        ("[broken", "cannot be used"),
        ("- a list\n", "cannot be used"),
    ],
)
def test_launch_files_that_would_not_do(content: str, word: str, tmp_path: Path):
    path = tmp_path / "launch.yaml"
    path.write_text(content)
    check = only(checks.launch_file({}, path))
    assert check.status == "fail"
    assert word in check.found
    assert check.fix


def test_a_missing_launch_file(tmp_path: Path):
    assert only(checks.launch_file({}, tmp_path / "none.yaml")).status == "fail"


def test_an_unknown_interface():
    check = only(checks.host_name({"GLOO_SOCKET_IFNAME": "nowhere0"}))
    assert check.status == "fail"
    assert "lo" in check.fix
    assert only(checks.host_name({"GLOO_SOCKET_IFNAME": "lo"})).status == "ok"


def test_an_exchange_that_cannot_work():
    check = only(checks.exchange({**clean(), "GLOO_SOCKET_IFNAME": "nowhere0"}))
    assert check.status == "fail"
    assert check.found


def test_a_port_in_use():
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # in use already, which is what the test needs
            held.enter_context(socket.create_server(("", 29500)))
        found = {check.name: check for check in checks.loopback({})}
    assert found["loopback"].status == "ok"
    assert found["port 29500"].status == "warn"
    assert "main_process_port" in found["port 29500"].fix


def test_the_host_name_is_examined():
    check = only(checks.host_name({}))
    assert socket.gethostname() in check.found
    assert check.status == "ok" or "GLOO_SOCKET_IFNAME" in check.fix


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    def broken(environment):
        raise OSError("no such thing")

    monkeypatch.setattr(doctor, "CHECKS", (broken,))
    found = doctor.examine({})[0]
    assert found == Check("broken", "fail", "OSError: no such thing", found.fix)
