"""What ``hf-decentral doctor`` looks at: each check says what it found and, where needed, the fix."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from hf_decentral.errors import DecentralizedError

Status = Literal["ok", "warn", "fail"]


class Check(NamedTuple):
    """One row: a name, whether it is well, what was found, and what to do if it is not."""

    name: str
    status: Status
    found: str
    fix: str = ""


def torch_build(environment: Mapping[str, str]) -> Iterator[Check]:
    """Version, accelerator, and the backends that torch was built with."""
    import torch
    import torch.distributed as dist

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    old = version < (2, 9)
    yield Check(
        "torch", "fail" if old else "ok", torch.__version__, "pip install 'torch>=2.9'" if old else ""
    )
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    count = torch.accelerator.device_count() if device else 0
    yield Check(
        "devices", "ok", f"{count} x {device.type}" if device else f"no accelerator, {os.cpu_count()} CPUs"
    )
    if not dist.is_available():
        yield Check(
            "backends", "fail", "torch was built without torch.distributed", "install another torch build"
        )
        return
    there = [name for name in ("gloo", "nccl", "xccl", "mpi") if dist.is_backend_available(name)]
    lacking = "gloo" not in there or (device is not None and device.type == "cuda" and "nccl" not in there)
    fix = "install a torch build with gloo, and with nccl for NVIDIA GPUs" if lacking else ""
    yield Check("backends", "fail" if lacking else "ok", ", ".join(there) or "none", fix)


def libraries(environment: Mapping[str, str]) -> Iterator[Check]:
    """The versions of what a run stands on."""
    names = ("hf-decentral", "accelerate", "transformers", "datasets", "tokenizers")
    told = []
    for name in names:
        try:
            told.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield Check(name, "fail", "not installed", f"pip install {name}")
    yield Check("libraries", "ok", ", ".join(told))


def world(environment: Mapping[str, str]) -> Iterator[Check]:
    """How many processes Accelerate sees, beside how many the launcher started."""
    import torch
    from accelerate import Accelerator

    started = environment.get("WORLD_SIZE", "")
    told = environment.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on", "y", "t")
    trap = (
        "make it Accelerator(cpu=not torch.accelerator.is_available()), or set ACCELERATE_USE_CPU=true "
        "before the launch; DecentralizedPlugin refuses to train otherwise"
    )
    if started.isdigit() and int(started) > 1:
        seen = Accelerator().num_processes
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # this process will not train
        wrong = seen != int(started)
        found = f"the launcher started {started} processes, Accelerate sees {seen}"
        yield Check("world", "fail" if wrong else "ok", found, trap if wrong else "")
    elif not torch.accelerator.is_available() and not told:
        found = "no accelerator: a plain Accelerator() sees one process however many are launched, silently"
        yield Check("world", "warn", found, trap)
    else:
        yield Check("world", "ok", "not launched; Accelerate would see every process")


def loopback(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether a port can be bound and reached on this machine, and the launcher's usual one."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
        yield Check("loopback", "ok", f"bound and reached port {port}")
    except OSError as error:
        yield Check("loopback", "fail", str(error), "allow connections on 127.0.0.1 (sandbox, firewall)")
    try:
        with socket.create_server(("", 29500)):
            pass
        yield Check("port 29500", "ok", "free")
    except OSError as error:
        fix = "set main_process_port: 0 (one machine) or another port in the launch file"
        yield Check("port 29500", "warn", f"the launcher's default port: {error}", fix)


def host_name(environment: Mapping[str, str]) -> Iterator[Check]:
    """Which address gloo will tell the other workers."""
    interface = environment.get("GLOO_SOCKET_IFNAME", "")
    known = sorted(psutil.net_if_addrs())
    if interface:
        missing = [name for name in interface.split(",") if name not in known]
        fix = f"set it to one of {', '.join(known)}" if missing else ""
        yield Check("interface", "fail" if missing else "ok", f"GLOO_SOCKET_IFNAME={interface}", fix)
        return
    name = socket.gethostname()
    several = (
        f"for several machines export GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME), one of {', '.join(known)}"
    )
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        fix = f"add {name} to /etc/hosts, or export GLOO_SOCKET_IFNAME=lo (one machine); {several}"
        yield Check("host name", "fail", f"{name} has no address ({error})", fix)
        return
    if address.startswith("127."):
        found = f"{name} is {address}: right for one machine, unreachable from another"
        yield Check("host name", "warn", found, several)
    else:
        yield Check("host name", "ok", f"{name} is {address}")


def shared_memory(environment: Mapping[str, str]) -> Iterator[Check]:
    """Room for loaders with workers and for NCCL."""
    place = Path("/dev/shm")
    if not place.is_dir():
        yield Check("shared memory", "warn", "no /dev/shm", "keep num_workers=0 in loaders")
        return
    free = shutil.disk_usage(place).free / 2**20
    small = free < 512
    fix = "docker run --shm-size=2g (or --ipc=host), or keep num_workers=0 in loaders" if small else ""
    yield Check("shared memory", "warn" if small else "ok", f"{free:,.0f} MiB free in /dev/shm", fix)


def settings(environment: Mapping[str, str]) -> Iterator[Check]:
    """What DecentralizedPlugin() would choose here, and from where."""
    from hf_decentral.integrations.settings import resolve

    try:
        yield Check("settings", "ok", resolve({}, environment).describe())
    except DecentralizedError as error:
        yield Check("settings", "fail", str(error), "mend that variable or file")


def launch_file(environment: Mapping[str, str], path: Path | None = None) -> Iterator[Check]:
    """The file that ``accelerate launch`` reads: the one given, or the user's default one."""
    from accelerate.commands.config.config_args import default_config_file

    from hf_decentral.integrations.launch import read

    given = path or Path(default_config_file)
    if path is None and not given.is_file():
        yield Check("launch file", "ok", "no default one; name one of accelerate_configs/ with --config_file")
        return
    try:
        content = read(given, "--config_file" if path else "accelerate's default")
    except DecentralizedError as error:
        yield Check("launch file", "fail", str(error), "write it again with `accelerate config`")
        return
    kind, workers = str(content.get("distributed_type", "NO")), content.get("num_processes", 1)
    several = isinstance(workers, int) and workers > 1
    found = f"{given}: {kind}, {workers} processes"
    if several and (kind in ("NO", "MULTI_CPU") or content.get("use_cpu")):
        fix = (
            "distributed_type: MULTI_GPU with use_cpu: false starts all of them, on CPUs too "
            "(see accelerate_configs/cpu_one_host.yaml)"
        )
        yield Check("launch file", "fail", f"{found}, of which accelerate starts one", fix)
    elif kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP", "XLA"):
        fix = "every worker holds the whole model: distributed_type: MULTI_GPU"
        yield Check("launch file", "fail", f"{found}: shards the model", fix)
    else:
        yield Check("launch file", "ok", found)


_PAIR = """
import sys, torch, torch.distributed as dist
from datetime import timedelta
rank, port = int(sys.argv[1]), int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", port, 2, rank == 0, timedelta(seconds=40))
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=40))
x = torch.ones(1000)
dist.all_reduce(x)
dist.barrier()
dist.destroy_process_group()
sys.exit(0 if x[0] == 2 else 1)
"""


def exchange(environment: Mapping[str, str]) -> Iterator[Check]:
    """Two processes that really exchange a tensor with gloo."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    clean = {
        name: value for name, value in environment.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    }
    began = time.monotonic()
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", _PAIR, str(rank), str(port)],
            env=clean,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told = [each.communicate(timeout=max(1.0, began + 90 - time.monotonic()))[1] for each in pair]
    except subprocess.TimeoutExpired:
        told = ["no answer within 90 s"]
    finally:
        for each in pair:
            each.kill()
            each.wait()
    wrong = next((text for text, each in zip(told, pair, strict=False) if each.returncode != 0), "")
    if wrong or len(told) < 2:
        last = (wrong.strip().splitlines() or ["the processes did not meet"])[-1]
        yield Check(
            "exchange", "fail", last, "export GLOO_SOCKET_IFNAME=lo, and see loopback and host name above"
        )
    else:
        yield Check(
            "exchange", "ok", f"two processes, gloo, {time.monotonic() - began:.1f} s with their start"
        )


CHECKS: tuple[Callable[[Mapping[str, str]], Iterator[Check]], ...] = (
    torch_build,
    libraries,
    world,
    loopback,
    host_name,
    shared_memory,
    settings,
    exchange,
)
