"""Hosts that are network namespaces, made and removed for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_decentral.bench import namespaces
from hf_decentral.bench.namespaces import Namespaces
from hf_decentral.errors import LaunchError, SettingsError
from tests.bench.hosts import left_by, shaped

SEND = """
import socket, sys
if sys.argv[1] == "take":
    with socket.create_server(("0.0.0.0", 5999)) as server:
        print("ready", flush=True)
        with server.accept()[0] as near:
            while near.recv(1 << 20):
                pass
else:
    with socket.create_connection((sys.argv[1], 5999), timeout=20) as near:
        near.sendall(bytes(300_000))
"""


def told(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@shaped
def test_hosts_reach_each_other_at_their_rates_and_count_what_they_send():
    with Namespaces(["100mbit", "50mbit"]) as made:
        take = subprocess.Popen(
            made.inside(1, [sys.executable, "-c", SEND, "take"]), stdout=subprocess.PIPE, text=True
        )
        assert take.stdout is not None and take.stdout.readline() == "ready\n"
        before = made.sent_bytes(0)
        told(*made.inside(0, [sys.executable, "-c", SEND, made.address(1)]))
        assert take.wait(20) == 0
        take.stdout.close()
        assert 300_000 < made.sent_bytes(0) - before < 400_000
        for host, rate in ((0, "100Mbit"), (1, "50Mbit")):
            # Out of the host, and into it at the bridge's port.
            assert f"rate {rate}" in told(*made.inside(host, ["tc", "qdisc", "show", "dev", "eth0"]))
            assert f"rate {rate}" in told("tc", "qdisc", "show", "dev", f"hfd{os.getpid()}p{host}")
    assert not left_by(os.getpid())


@shaped
def test_nothing_stays_after_an_error():
    made: list[str] = []

    def broken() -> None:
        with Namespaces(["1gbit"] * 2):
            made.extend(left_by(os.getpid()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert len(made) == 2 + 2 + 1  # namespaces, ports, the bridge
    assert not left_by(os.getpid())


@shaped
def test_nothing_stays_of_what_was_half_made(monkeypatch: pytest.MonkeyPatch):
    def refuse(device: str, rate: str) -> tuple[str, ...]:
        return ("tc", "qdisc", "add", "dev", device, "root", "nonsense")

    monkeypatch.setattr(namespaces, "_shape", refuse)
    with pytest.raises(LaunchError, match="nonsense"), Namespaces(["1gbit"] * 2):
        pass
    assert not left_by(os.getpid())


@shaped
def test_what_a_killed_one_left_is_removed_and_nothing_else():
    ended = subprocess.Popen(["true"])
    ended.wait()
    try:
        told("ip", "netns", "add", f"hfd{ended.pid}n0")
        told("ip", "link", "add", f"hfd{ended.pid}b", "type", "bridge")
        told("ip", "link", "add", "hfdother", "type", "bridge")  # not a name of ours
        with Namespaces(["1gbit"]):
            assert not left_by(ended.pid)
            assert "hfdother" in os.listdir("/sys/class/net")
            assert namespaces.remove_stale() == []
            assert len(left_by(os.getpid())) == 3  # this process lives, so its own are no leftovers
    finally:
        told("ip", "link", "del", "hfdother")


@shaped
def test_two_at_once_have_networks_of_their_own():
    ask = (
        "from hf_decentral.bench.namespaces import Namespaces\n"
        "with Namespaces(['1gbit']) as made: print(made.address(0), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", ask], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        address = other.stdout.readline().strip()
        with Namespaces(["1gbit"]) as made:
            assert left_by(other.pid)
            assert address and address.rpartition(".")[0] != made.address(0).rpartition(".")[0]
        assert left_by(other.pid)
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.wait(20) == 0
    assert not left_by(other.pid)


def test_addresses_are_private_and_differ():
    made = Namespaces(["1gbit"] * namespaces.MOST_HOSTS)
    found = {made.address(host) for host in range(made.hosts)}
    assert len(found) == made.hosts
    assert all(address.startswith("10.") and int(address.split(".")[3]) < 255 for address in found)


def test_names_fit_into_a_device():
    assert len(f"hfd{2**22}p{namespaces.MOST_HOSTS - 1}") <= 15  # the kernel's longest pid has 7 digits


def test_a_rate_that_is_none():
    with pytest.raises(SettingsError, match="200mbit"):
        Namespaces(["1gbit", "quick"])


def test_without_iproute2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="iproute2"):
        Namespaces(["1gbit"]).__enter__()
    (tmp_path / "ip").write_text("#!/bin/sh\n")
    (tmp_path / "ip").chmod(0o755)
    with pytest.raises(LaunchError, match="'tc' was not found"):
        Namespaces(["1gbit"]).__enter__()


def test_without_root(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LaunchError, match="--link none"):
        Namespaces(["1gbit"]).__enter__()
