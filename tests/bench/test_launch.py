"""Workers are started with torchrun's variables, and all end, whatever ends the one that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hf_decentral.bench import launch
from hf_decentral.errors import LaunchError
from tests.bench.hosts import left_by, shaped

TELL = """
import json, os, sys
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR",
         "MASTER_PORT", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "EXTRA"]
found = {name: os.environ[name] for name in names}
open(os.path.join(sys.argv[1], found["RANK"]), "w").write(json.dumps(found))
"""
# Worker 1 fails at once; the others would sleep.
FAIL = """
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit("the reason why")
time.sleep(600)
"""
# Starts two workers on two hosts that say who they are and sleep.
DRIVE = """
import sys
from hf_decentral.bench import launch
from hf_decentral.bench.namespaces import Namespaces
work = "import os, sys, time; open(os.path.join(sys.argv[1], str(os.getpid())), 'w'); time.sleep(600)"
with launch.ended_in_order(), Namespaces(["1gbit", "1gbit"]) as hosts:
    launch.run(hosts, 1, [sys.executable, "-c", work, sys.argv[1]])
"""


def until(condition, seconds: float = 60) -> None:
    """Wait for something that happens soon."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_workers_are_told_where_they_stand(tmp_path: Path):
    launch.run(launch.Loopback(2), 3, [sys.executable, "-c", TELL, str(tmp_path)], {"EXTRA": "more"})
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(6)]
    assert [each["LOCAL_RANK"] for each in found] == list("012012")
    assert [each["GROUP_RANK"] for each in found] == [each["NODE_RANK"] for each in found] == list("000111")
    assert {each["WORLD_SIZE"] for each in found} == {"6"}
    assert {each["LOCAL_WORLD_SIZE"] for each in found} == {"3"}
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in found}) == 1
    assert {each["GLOO_SOCKET_IFNAME"] for each in found} == {"lo"}
    assert {each["OMP_NUM_THREADS"] for each in found} == {"1"}
    assert {each["EXTRA"] for each in found} == {"more"}


def test_one_that_fails_ends_all_and_is_heard(capfd: pytest.CaptureFixture[str]):
    before = set(psutil.Process().children(recursive=True))  # what other tests keep
    with pytest.raises(LaunchError, match="Worker 1 ended with exit code 1"):
        launch.run(launch.Loopback(3), 1, [sys.executable, "-c", FAIL])
    assert "the reason why" in capfd.readouterr().err
    assert set(psutil.Process().children(recursive=True)) <= before


def test_one_that_is_killed_is_told_by_its_signal():
    kill = "import os, time; os.environ['RANK'] == '2' and os.kill(os.getpid(), 9); time.sleep(600)"
    with pytest.raises(LaunchError, match="Worker 2 was ended by signal 9"):
        launch.run(launch.Loopback(3), 1, [sys.executable, "-c", kill])


def test_one_that_will_not_end_is_made_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.2)
    deaf = (
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=True
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        launch.end([worker])
        assert worker.returncode == -signal.SIGKILL


@shaped
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_ends_it_in_order_leaves_nothing(tmp_path: Path, number: signal.Signals):
    (tmp_path / "workers").mkdir()
    (tmp_path / "temporary").mkdir()
    driver = started(tmp_path)
    assert left_by(driver.pid)
    driver.send_signal(number)
    assert driver.wait(60) != 0
    assert not left_by(driver.pid)
    assert not any(psutil.pid_exists(worker) for worker in workers(tmp_path))
    assert not os.listdir(tmp_path / "temporary")


@shaped
def test_a_killed_one_takes_its_workers_along_and_the_next_one_removes_its_hosts(tmp_path: Path):
    (tmp_path / "workers").mkdir()
    (tmp_path / "temporary").mkdir()
    killed = started(tmp_path)
    killed.kill()
    killed.wait()
    until(lambda: not any(alive(worker) for worker in workers(tmp_path)))
    assert left_by(killed.pid)
    for name in os.listdir(tmp_path / "workers"):
        (tmp_path / "workers" / name).unlink()
    other = started(tmp_path)
    assert not left_by(killed.pid)
    other.terminate()
    other.wait(60)
    assert not left_by(other.pid)


def alive(pid: int) -> bool:
    """A process of which somebody could still take notice: not even a zombie."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def workers(folder: Path) -> list[int]:
    return [int(name) for name in os.listdir(folder / "workers")]


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A process that has made two hosts, with a worker on each that runs."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVE, str(folder / "workers")],
        env={**os.environ, "TMPDIR": str(folder / "temporary")},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: len(workers(folder)) == 2)
    return driver
