"""The compressed methods under a real optimizer: on processes, over files, with bad numbers."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from hf_decentral import gossip
from hf_decentral.errors import MismatchError, SettingsError
from hf_decentral.optim import decentralize
from hf_decentral.transport import Memory
from tests.optim.cases import train_one, train_stacked
from tests.processes import outcomes, run

WORKERS, STEPS = 4, 8
TINY, WHOLE = 1e-5, 4.0  # megabytes of a bucket: one parameter each, or all in one
SHAPES = ((7, 5), (5,), (3, 2, 4), (), (11, 3), (0,))  # odd sizes, one element, none
CASES: dict[str, dict[str, Any]] = {
    "choco": {"averaging": "choco(top_k(0.2), 0.3)", "order": "atc"},
    "choco behind": {"averaging": "choco(low_rank(1))", "order": "awc"},
    "deepsqueeze": {"averaging": "deepsqueeze(int4, 0.5)", "order": "atc"},
    "deepsqueeze behind": {"averaging": "deepsqueeze(low_rank(2), 0.3)", "order": "awc"},
    "moniqua": {"averaging": "moniqua(4)", "order": "atc"},
    "moniqua behind": {"averaging": "moniqua", "order": "awc"},
    "powergossip": {"averaging": "powergossip", "order": "atc"},
    "powergossip behind": {"averaging": "powergossip(2)", "order": "awc", "topology": "base_graph"},
    "powergossip late": {
        "averaging": "powergossip",
        "order": "awc",
        "topology": "every(2, ring)",
        "delay": 2,
    },
    # Its mean over all is one collective, which sums in an order of its own.
    "scalecom": {"averaging": "scalecom(0.3, 0.7)", "order": "atc", "topology": "complete"},
    "scalecom rarely": {"averaging": "scalecom(0.3)", "order": "atc", "topology": "every(3, complete)"},
}


def beginning(case: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    dtype = torch.float64 if case.startswith("scalecom") else torch.float32
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def one(case: str, bucket_mb: float = WHOLE) -> tuple[list[torch.nn.Parameter], Optimizer]:
    """The parameters of one worker among processes."""
    params = [torch.nn.Parameter(p) for p in beginning(case)]
    how = {"topology": "ring", "bucket_mb": bucket_mb} | CASES[case]
    return params, decentralize(torch.optim.Adam(params, lr=0.05), **how)


def stacked(case: str, bucket_mb: float = WHOLE) -> tuple[list[torch.nn.Parameter], Optimizer]:
    """The parameters of all of them."""
    params = [torch.nn.Parameter(p.expand(WORKERS, *p.shape).clone()) for p in beginning(case)]
    how = {"topology": "ring", "bucket_mb": bucket_mb, "transport": Memory(WORKERS)} | CASES[case]
    return params, decentralize(torch.optim.Adam(params, lr=0.05), **how)


def copies(params: list[torch.nn.Parameter]) -> list[Tensor]:
    return [p.detach().clone() for p in params]


def trained(worker: int) -> dict[tuple[str, float], list[Tensor]]:
    found = {}
    for case in CASES:
        for bucket_mb in (WHOLE, TINY):
            params, optimizer = one(case, bucket_mb)
            train_one(params, optimizer, STEPS, worker)
            found[case, bucket_mb] = copies(params)
    return found


def test_processes_equal_the_simulator() -> None:
    there = run(WORKERS, trained)
    for case, bucket_mb in there[0]:
        params, optimizer = stacked(case, bucket_mb)
        train_stacked(params, optimizer, STEPS, WORKERS)
        assert (len(gossip(optimizer).flats()) > 1) == (bucket_mb == TINY)
        for w in range(WORKERS):
            for p, found in zip(params, there[w][case, bucket_mb], strict=True):
                if case.startswith("scalecom"):
                    torch.testing.assert_close(found, p.detach()[w], rtol=0, atol=1e-12)
                else:
                    assert torch.equal(found, p.detach()[w]), (case, bucket_mb, w)


def test_scalecom_gives_all_processes_one_model() -> None:
    first, *others = run(WORKERS, synchronous)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def synchronous(worker: int) -> list[Tensor]:
    params, optimizer = one("scalecom")
    train_one(params, optimizer, STEPS, worker)
    return copies(params)


def resumed(worker: int) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """The same training in one piece, and with a new start from a file after five steps."""
    found = {}
    for case in CASES:
        results = []
        for stop in (False, True):
            params, optimizer = one(case, TINY)
            train_one(params, optimizer, 5, worker)
            if stop:
                file = io.BytesIO()
                torch.save({"optimizer": optimizer.state_dict(), "params": copies(params)}, file)
                file.seek(0)
                saved = torch.load(file, weights_only=True)
                params, optimizer = one(case, TINY)
                for p, value in zip(params, saved["params"], strict=True):
                    p.data.copy_(value)
                optimizer.load_state_dict(saved["optimizer"])
            train_one(params, optimizer, 6, worker)
            results.append(copies(params))
        found[case] = (results[0], results[1])
    return found


def test_resume_is_bitwise() -> None:
    for found in run(WORKERS, resumed):
        for case, (whole, again) in found.items():
            assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True)), case


def far(worker: int) -> None:
    """Worker 2 walks away from the others."""
    p = torch.nn.Parameter(torch.zeros(10))
    optimizer = decentralize(torch.optim.SGD([p], lr=1.0), "ring", averaging="moniqua(8, 1)", order="atc")
    for _ in range(50):
        p.grad = torch.full_like(p, -0.45 if worker == 2 else 0.0)
        optimizer.step()


def test_moniqua_stops_all_processes_where_workers_are_too_far_apart() -> None:
    told = [outcome.error for outcome in outcomes(WORKERS, far)]
    assert all(told)
    named = [error for error in told if "with averaging 'moniqua' and bound 1" in error]
    assert any("A parameter of worker 2 is" in error for error in named)
    assert all("PeerLost" in error for error in told if error not in named)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["order"] == "atc"])
def test_numbers_of_one_worker_that_are_none(case: str) -> None:
    """Parameters that travel arrive as NaN; in differences, and in what a sparse code leaves out, nothing."""
    params, optimizer = stacked(case)
    train_stacked(params, optimizer, 3, WORKERS)
    with torch.no_grad():
        params[0][1, 3, 2] = torch.nan
    # No local step: the guard would drop one whose gradient is not finite, and a moment would keep it.
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    gossip(optimizer).flush()
    bad = torch.isnan(params[0].detach())
    spreads = case in ("deepsqueeze", "moniqua")
    assert bad[1, 3, 2] or case.startswith("scalecom")
    assert bad[0].any() == spreads
    assert not bad[3].any()  # on the other side of the ring
    assert all(p.detach().isfinite().all() for p in params[1:])


@pytest.mark.parametrize("case", sorted(CASES))
def test_an_empty_bucket_travels_too(case: str) -> None:
    p = torch.nn.Parameter(torch.ones(WORKERS, 0))
    how = {"topology": "ring", "transport": Memory(WORKERS)} | CASES[case]
    optimizer = decentralize(torch.optim.SGD([p], lr=0.1), **how)
    for _ in range(4):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    gossip(optimizer).flush()


@pytest.mark.parametrize("case", sorted(CASES))
def test_complex_parameters_are_refused(case: str) -> None:
    p = torch.nn.Parameter(torch.ones(WORKERS, 3, dtype=torch.complex64))
    how = {"topology": "ring", "transport": Memory(WORKERS)} | CASES[case]
    with pytest.raises(SettingsError, match="(?i)real parameters"):
        decentralize(torch.optim.SGD([p]), **how)


def test_directions_of_another_rank_are_refused() -> None:
    params, optimizer = stacked("powergossip")
    train_stacked(params, optimizer, 3, WORKERS)
    state = optimizer.state_dict()
    state["hf_decentral"]["averaging"] = "powergossip(2)"
    params = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = torch.optim.Adam(params, lr=0.05)
    decentralize(other, "ring", averaging="powergossip(2)", order="atc", transport=Memory(WORKERS))
    other.load_state_dict(state)
    with pytest.raises(MismatchError, match="directions"):
        gossip(other).flats()
