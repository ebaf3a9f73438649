"""Laws of the batches by tokens: as many for each worker, every row once, within the bound."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.errors import DataError, SettingsError
from hf_decentral.translation import TokenBatches, encode, lengths, load_pairs, load_vocabulary

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=120)


def dealt(of: Any, max_tokens: int, workers: int, epoch: int = 0, **settings: Any) -> list[list[list[int]]]:
    """The batches of every worker: worker, then step, then row."""
    found = []
    for worker in range(workers):
        batches = TokenBatches(of, max_tokens, worker=worker, workers=workers, **({"seed": 0} | settings))
        batches.set_epoch(epoch)
        found.append(list(batches))
        assert len(batches) == len(found[-1])
    return found


@settings(max_examples=200, deadline=None)
@given(rows=LENGTHS, max_tokens=st.integers(30, 200), workers=st.integers(1, 6), epoch=st.integers(0, 3))
def test_the_laws(rows: list[tuple[int, int]], max_tokens: int, workers: int, epoch: int) -> None:
    if len(rows) < workers:
        with pytest.raises(DataError, match=f"Each of {workers} workers"):
            dealt(rows, max_tokens, workers)
        return
    found = dealt(rows, max_tokens, workers, epoch)
    # As many batches for every worker, none of them empty; the same number in every epoch.
    assert len({len(batches) for batches in found}) == 1
    assert all(batch for batches in found for batch in batches)
    assert len(found[0]) == len(dealt(rows, max_tokens, workers, epoch + 1)[0])
    # Both sides within the bound, padding included.
    for batch in itertools.chain.from_iterable(found):
        for side in (0, 1):
            assert len(batch) * max(rows[row][side] for row in batch) <= max_tokens
    # Every row once; at most workers - 1 twice, and only where no worker could take two rows in a step.
    seen = Counter(row for batches in found for batch in batches for row in batch)
    assert set(seen) == set(range(len(rows)))
    again = sum(seen.values()) - len(rows)
    assert again < workers
    if again:
        assert max(seen.values()) == 2 and all(len(batch) == 1 for batches in found for batch in batches)
    # The workers of a step have as many rows, give or take one.
    for step in zip(*found, strict=True):
        sizes = [len(batch) for batch in step]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60, deadline=None)
@given(rows=LENGTHS, max_tokens=st.integers(30, 200), workers=st.integers(1, 4), skipped=st.integers(0, 8))
def test_skipping_batches_gives_the_rest(
    rows: list[tuple[int, int]], max_tokens: int, workers: int, skipped: int
) -> None:
    if len(rows) < workers:
        return
    first, second = (
        TokenBatches(rows, max_tokens, worker=workers - 1, workers=workers, seed=5) for _ in range(2)
    )
    first.set_epoch(3)
    second.set_epoch(3)
    whole = list(first)
    assert list(itertools.islice(second, skipped, None)) == whole[skipped:]
    assert list(first) == whole


def test_the_order_follows_seed_and_epoch() -> None:
    rows = np.random.default_rng(0).integers(1, 20, 500)
    first = dealt(rows, 100, 2)
    assert first == dealt(rows, 100, 2)
    assert first != dealt(rows, 100, 2, seed=1) != dealt(rows, 100, 2, seed=1, epoch=1)
    # Other rows come together, not only the same batches in another order.
    assert {tuple(sorted(batch)) for batch in first[0]} != {
        tuple(sorted(batch)) for batch in dealt(rows, 100, 2, epoch=1)[0]
    }
    still = [dealt(rows, 100, 2, epoch=epoch, shuffle=False)[1] for epoch in (0, 1)]
    assert still[0] == still[1]
    longest = [max(rows[row] for row in batch) for batch in still[0]]
    assert longest == sorted(longest, reverse=True)


def test_a_row_longer_than_the_bound_is_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="hf_decentral"):
        found = dealt([50, 3, 3, 3, 60, 3], 12, 2)
    held = sorted(sorted(batch) for batches in found for batch in batches)
    assert [0] in held and [4] in held and [len(batch) for batch in held] == [1, 2, 2, 1]
    assert any("2 pairs are longer than max_tokens=12" in message for message in caplog.messages)


def test_longer_rows_can_be_left_out() -> None:
    rows = np.array([[5, 5], [20, 3], [3, 20], [7, 7]])
    batches = TokenBatches(rows, 40, worker=0, workers=1, seed=0, drop_longer_than=10)
    assert batches.left_out == 2
    assert sorted(itertools.chain.from_iterable(batches)) == [0, 3]
    with pytest.raises(DataError, match=r"1 training pair \(3 longer(.|\n)*Each of 2 workers"):
        TokenBatches(rows, 40, worker=0, workers=2, seed=0, drop_longer_than=5)


def test_blank_rows_are_rows() -> None:
    assert sorted(row for batch in dealt([0, 0, 0], 8, 1)[0] for row in batch) == [0, 1, 2]


@pytest.mark.parametrize(("max_tokens", "worker"), [(0, 0), (8, 2), (8, -1)])
def test_numbers_out_of_range(max_tokens: int, worker: int) -> None:
    with pytest.raises(SettingsError):
        TokenBatches([1, 2, 3], max_tokens, worker=worker, workers=2, seed=0)


def test_real_pairs_in_a_loader(real: dict[str, Path]) -> None:
    pairs = load_pairs("en", "de", **real, limit=2_000)
    vocabulary = load_vocabulary(pairs["train"], 1_000)
    train = encode(pairs["train"], vocabulary, max_source_length=128, max_target_length=128)
    sizes = lengths(train)
    collate = transformers.DataCollatorForSeq2Seq(vocabulary)
    targets, filled, steps = 0, 0, []
    for worker in range(4):
        batches = TokenBatches(sizes, 1_500, worker=worker, workers=4, seed=0)
        tokens = []
        for batch in torch.utils.data.DataLoader(train, batch_sampler=batches, collate_fn=collate):
            assert max(batch["input_ids"].numel(), batch["labels"].numel()) <= 1_500
            tokens.append(int((batch["labels"] != -100).sum()))
            filled += batch["labels"].numel()
        targets += sum(tokens)
        steps.append(tokens)
    assert targets == sizes[:, 1].sum()
    assert targets > 0.8 * filled  # little padding
    # The workers of a step have about as many target tokens.
    spread = np.array(steps).std(axis=0) / np.array(steps).mean(axis=0)
    assert np.median(spread) < 0.1
