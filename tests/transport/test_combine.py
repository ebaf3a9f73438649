"""Weighted sums of vectors that are longer than one chunk."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from hf_decentral.transport.combine import _CHUNK, Combiner

LENGTH = 2 * _CHUNK + 17


def expected(terms: list[Tensor], weights: list[float]) -> Tensor:
    """The same roundings in one pass after the other; equal weights are multiplied to the sum."""
    uniform = len(set(weights)) == 1
    parts = [term if uniform else term * weight for term, weight in zip(terms, weights, strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total * weights[0] if uniform else total


@pytest.mark.parametrize("weights", [[0.5, 0.5], [1 / 3] * 3, [0.25, 0.75], [0.2, 0.3, 0.5]])
@pytest.mark.parametrize("own", [None, 0, 1, -1])
def test_chunks_change_no_bit(weights: list[float], own: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    terms = [torch.randn(LENGTH, generator=generator) for _ in weights]
    right = expected([term.clone() for term in terms], weights)
    out = torch.empty(LENGTH) if own is None else terms[own]
    found = Combiner()(terms, weights, out)
    assert found is out
    assert torch.equal(out, right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(dtype: torch.dtype) -> None:
    term = torch.randn(LENGTH, generator=torch.Generator().manual_seed(0)).to(dtype)
    out = term.clone()
    Combiner()([out, term.clone(), term.clone()], [1 / 3] * 3, out)
    assert torch.equal(out, term), "three equal workers stay what they are"


def test_threads_sum_in_memory_of_their_own() -> None:
    combine, found = Combiner(), {}

    def work(worker: int) -> None:
        terms = [torch.full((LENGTH,), float(worker), dtype=torch.bfloat16) for _ in range(3)]
        for _ in range(30):
            combine(terms, [1 / 3] * 3, terms[0])
        found[worker] = terms[0]

    threads = [threading.Thread(target=work, args=(worker,)) for worker in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(bool((out == worker).all()) for worker, out in found.items())
