"""A worker that dies, ends early or is too slow: the others say which one it was."""

from __future__ import annotations

import os
import signal
import time

import torch

from hf_decentral.errors import PeerLost
from hf_decentral.optim import decentralize, gossip
from tests.processes import outcomes, run


def train(worker: int, topology: str, odd_one: int, what: str) -> tuple[tuple[int, ...], str, float]:
    x = torch.nn.Parameter(torch.zeros(1000))
    optimizer = decentralize(torch.optim.SGD([x], lr=0.1), topology, comm_timeout=20 if what != "slow" else 2)
    began = time.monotonic()
    try:
        for step in range(50):
            if worker == odd_one and step == 5:
                if what == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if what == "end":
                    break
                time.sleep(20)
            x.grad = torch.ones(1000)
            optimizer.step()
    except PeerLost as lost:
        return lost.workers, str(lost), time.monotonic() - began
    return (), "", 0.0


def test_a_killed_worker_is_named_by_all_others() -> None:
    for topology in ("ring", "complete"):
        found = outcomes(5, train, topology, 3, "kill")
        assert found[3].exit_code == -signal.SIGKILL
        for rank in (0, 1, 2, 4):
            lost, text, seconds = found[rank].value
            assert seconds < 20
            if topology == "ring":  # in a collective it is not known who of the others is missing
                assert lost == (3,), text
            assert 3 in lost, text
            assert f"worker {rank} in round" in text


def test_a_worker_that_ends_early_is_told_from_one_that_died() -> None:
    found = run(4, train, "one_peer_exponential", 2, "end")
    assert found[2] == ((), "", 0.0)
    told = [text for _, text, _ in found if text]
    assert told
    assert all("Worker 2 ended after 5 steps" in text for text in told)
    assert "same number of optimizer steps" in told[0]


def test_a_slow_worker_is_named_when_the_deadline_has_passed() -> None:
    found = outcomes(4, train, "ring", 1, "slow")
    lost, text, seconds = found[0].value
    assert lost == (1,)
    assert "--comm_timeout" in text
    assert seconds < 20  # not as long as the worker that was slow


def five_hundred_rounds(worker: int, topology: str) -> float:
    x = torch.nn.Parameter(torch.full((64,), float(worker)))
    optimizer = decentralize(torch.optim.SGD([x], lr=0.0), topology)
    with torch.no_grad():
        x.fill_(worker)
    for _ in range(500):
        x.grad = torch.zeros(64)
        optimizer.step()
    gossip(optimizer).flush()
    return float(x.detach().sub(3.0).abs().max())


def test_five_hundred_rounds_with_an_odd_and_prime_number_of_workers() -> None:
    for topology in ("ring", "aer", "one_peer_exponential", "base_graph", "complete"):
        assert max(run(7, five_hundred_rounds, topology)) < 1e-4


def half(worker: int, dtype: torch.dtype) -> torch.Tensor:
    x = torch.nn.Parameter(torch.full((64,), 1.1, dtype=dtype))
    optimizer = decentralize(torch.optim.SGD([x], lr=0.0), "ring")
    for _ in range(200):
        x.grad = torch.zeros_like(x)
        optimizer.step()
    gossip(optimizer).flush()
    return x.detach()


def test_equal_workers_in_half_precision_do_not_drift() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        for x in run(4, half, dtype):
            assert torch.equal(x, torch.full((64,), 1.1, dtype=dtype))
