"""Averages over two hosts by shards: the numbers, the bytes, the memory, and who is named when lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from hf_decentral.errors import DecentralizedError, PeerLost
from hf_decentral.optim import decentralize, gossip
from hf_decentral.topology import build
from hf_decentral.transport import Memory, Processes, Send
from hf_decentral.transport.background import Background
from tests import allocations
from tests.processes import outcomes, run

LAYOUTS = {
    "2x2": (0, 0, 1, 1),
    "2x2 mixed": (0, 1, 1, 0),
    "3x2": (0, 0, 1, 1, 2, 2),
    "2x3": (0, 0, 0, 1, 1, 1),
    "uneven": (0, 0, 0, 1, 1),
}
LENGTHS = (64, 37, 5, 1, 0)  # 5 leaves the third of three workers one element, 1 leaves two of them none


def rows(workers: int, length: int, dtype: torch.dtype) -> Tensor:
    """The payload ``[W, P]`` of all workers."""
    generator = torch.Generator().manual_seed(length)
    return torch.randn(workers, length, generator=generator, dtype=torch.float64).to(dtype)


def all_rounds(transport: Any, hosts: tuple[int, ...], payload_of: Callable[[Tensor], Tensor]) -> list[Any]:
    """A period of rounds over every length, with what the transport says it sent."""
    topology = build("hierarchical", len(hosts), hosts)
    transport.prepare(topology)
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for lane, length in enumerate(LENGTHS):
            for step in range(topology.period or 1):
                payload = payload_of(rows(len(hosts), length, dtype))
                before = payload.clone()
                into = torch.empty_like(payload) if length % 2 else payload
                pending = transport.start(Send(topology(step), payload, into), step, lane)
                pending.settle()
                assert torch.equal(payload, before), "nothing is applied before the result is asked for"
                found.append((dtype, length, step, pending.result().clone(), transport.sent_bytes))
    return found


def one_worker(worker: int, hosts: tuple[int, ...]) -> list[Any]:
    return all_rounds(Processes(20), hosts, lambda payload: payload[worker : worker + 1].clone())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_processes_give_the_numbers_and_bytes_of_the_simulator(layout: str) -> None:
    hosts = LAYOUTS[layout]
    here = all_rounds(Memory(len(hosts)), hosts, lambda payload: payload)
    there = run(len(hosts), one_worker, hosts)
    for k, (dtype, length, step, expected, sent) in enumerate(here):
        close = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2}[dtype]
        for worker in range(len(hosts)):
            found = there[worker][k][3]
            assert (found.dtype, found.shape) == (dtype, (1, length))
            torch.testing.assert_close(
                found[0], expected[worker], rtol=close, atol=close, msg=f"{dtype} {length} {step} {worker}"
            )
        if dtype is not torch.bfloat16:  # a collective sums it in float32, and sends it so
            assert sum(values[k][4] for values in there) / len(hosts) == pytest.approx(sent)


@pytest.mark.parametrize("layout", ["2x2", "2x3"])
def test_both_hosts_hold_one_average_to_the_last_bit(layout: str) -> None:
    hosts = LAYOUTS[layout]
    there = run(len(hosts), one_worker, hosts)
    for values in zip(*there, strict=True):
        assert all(torch.equal(value[3], values[0][3]) for value in values)


def watched(worker: int, hosts: tuple[int, ...], length: int) -> dict[int, int]:
    """Bytes of one exchange by the worker that they go to."""
    to: dict[int, int] = {}
    send = dist.isend

    def counting(tensor: Tensor, dst: int, **rest: Any) -> Any:
        to[dst] = to.get(dst, 0) + tensor.nbytes
        return send(tensor, dst, **rest)

    dist.isend = counting  # type: ignore[assignment]
    transport, topology = Processes(20), build("hierarchical", len(hosts), hosts)
    transport.prepare(topology)
    transport.start(Send(topology(0), torch.ones(1, length)), 0, 0).result()
    assert transport.sent_bytes == sum(to.values())
    return to


@pytest.mark.parametrize(("layout", "length"), [("2x2", 37), ("2x3", 37), ("2x3", 4)])
def test_one_copy_of_the_parameters_leaves_a_host(layout: str, length: int) -> None:
    hosts = LAYOUTS[layout]
    found = run(len(hosts), watched, hosts, length)
    for host in set(hosts):
        crossing = [
            found[i].get(j, 0) for i in range(len(hosts)) for j in found[i] if hosts[i] == host != hosts[j]
        ]
        assert sum(crossing) == 4 * length
    each = len(hosts) // 2
    assert sum(sum(to.values()) for to in found) == 4 * length * (2 * each - 1) * 2


def equal_half(worker: int, dtype: torch.dtype) -> Tensor:
    x = torch.nn.Parameter(torch.full((70,), 1.1, dtype=dtype))
    optimizer = decentralize(torch.optim.SGD([x], lr=0.0), "hierarchical", hosts=LAYOUTS["2x3"])
    for _ in range(100):
        x.grad = torch.zeros_like(x)
        optimizer.step()
    gossip(optimizer).flush()
    return x.detach()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_equal_workers_in_half_precision_do_not_drift(dtype: torch.dtype) -> None:
    for x in run(6, equal_half, dtype):
        assert torch.equal(x, torch.full((70,), 1.1, dtype=dtype))


def allocated(worker: int, size: int) -> tuple[int, float]:
    x = torch.nn.Parameter(torch.zeros(size))
    optimizer = decentralize(torch.optim.SGD([x], lr=0.1), "hierarchical", hosts=LAYOUTS["2x2"])
    for _ in range(3):
        x.grad = torch.ones(size)
        optimizer.step()
    handle = gossip(optimizer)
    return allocations.of_exchanges(handle), allocations.held(handle) / x.nbytes


def test_it_keeps_a_copy_and_a_shard_and_allocates_nothing_anew() -> None:
    size = 1 << 18
    for fresh, held in run(4, allocated, size):
        assert fresh < size // 20
        assert held <= 1.55


def collectives(worker: int, hosts: tuple[int, ...]) -> list[tuple[int, ...]]:
    transport = Processes(20)
    transport.prepare(build("hierarchical", len(hosts), hosts))
    return sorted(transport._groups)


def test_groups_are_opened_only_where_a_collective_is_used() -> None:
    assert run(5, collectives, (0, 0, 0, 1, 1))[0] == [(0, 1, 2, 3, 4)]
    assert run(6, collectives, LAYOUTS["3x2"])[0] == [tuple(range(6))]


# --- lost workers -------------------------------------------------------------------------------------------


class Fault:
    """Ends, or makes late, a worker just before it posts the messages of one phase of a step."""

    def __init__(self, transport: Processes, phase: int, step: int, act: Callable[[], None]) -> None:
        self._post = transport._post
        self._address = (step, phase)
        self._act = act

    def __call__(self, step: int, lane: int, phase: int, *mail: Any) -> Any:
        if (step, phase) == self._address:
            self._act()
        return self._post(step, lane, phase, *mail)


def train(worker: int, phase: int, what: str) -> tuple[tuple[int, ...], str]:
    x = torch.nn.Parameter(torch.zeros(1000))
    optimizer = decentralize(
        torch.optim.SGD([x], lr=0.1),
        "hierarchical",
        hosts=LAYOUTS["2x2"],
        comm_timeout=2 if what == "slow" else 20,
    )
    transport = gossip(optimizer).transport
    store = dist.distributed_c10d._get_default_store()
    if worker == 3:
        act = {
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "slow": lambda: store.wait(["told 0", "told 1", "told 2"]),  # until all others have given up
        }[what]
        transport._post = Fault(transport, phase, 3, act)  # type: ignore[assignment]
    try:
        for _ in range(8):
            x.grad = torch.ones(1000)
            optimizer.step()
    except PeerLost as lost:
        store.set(f"told {worker}", "")
        return lost.workers, str(lost)
    return (), ""


@pytest.mark.parametrize("what", ["kill", "slow"])
@pytest.mark.parametrize("phase", [1, 2, 3])
def test_a_worker_lost_in_any_phase_is_named_by_all_others(phase: int, what: str) -> None:
    found = outcomes(4, train, phase, what)
    for rank in (0, 1, 2):
        lost, text = found[rank].value
        assert lost == (3,), text
        assert f"worker {rank} in round" in text


def other_hosts(worker: int) -> str:
    hosts = (0, 1, 0, 1) if worker == 2 else (0, 0, 1, 1)
    try:
        decentralize(
            torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1), "hierarchical", hosts=hosts
        )
    except DecentralizedError as error:
        return str(error)
    return ""


def test_workers_that_disagree_on_the_hosts_hear_of_it() -> None:
    for text in run(4, other_hosts):
        assert "hosts" in text
        assert "worker 2 has (0, 1, 0, 1)" in text


def test_work_begun_by_work_behind_is_done_at_once() -> None:
    background = Background()
    inner = background.begin(lambda: background.begin(lambda: 7)())
    assert inner() == 7
