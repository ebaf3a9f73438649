"""Batches: every worker its part, the same order each time, and exact continuation."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.data.batches import ContextBatches, StreamBatches, first_tokens, validation
from hf_decentral.data.corpus import Corpus
from hf_decentral.errors import DataError
from tests.data.test_packing import Bytes


def row(contexts: int, block: int = 4) -> np.ndarray[Any, Any]:
    """Tokens of which each context holds only its own number."""
    return np.repeat(np.arange(contexts, dtype=np.uint16), block)


def numbers(batch: torch.Tensor) -> list[int]:
    assert batch.dtype == torch.int64
    assert (batch == batch[:, :1]).all()
    return batch[:, 0].tolist()


@settings(max_examples=60, deadline=None)
@given(workers=st.integers(1, 7), size=st.integers(1, 4), extra=st.integers(0, 40), seed=st.integers(0, 9))
def test_an_epoch_reads_no_context_twice_and_workers_share_none(
    workers: int, size: int, extra: int, seed: int
) -> None:
    contexts = workers * size + extra
    readers = [
        ContextBatches(row(contexts), 4, size, worker=w, workers=workers, seed=seed) for w in range(workers)
    ]
    epochs = []
    for _ in range(2):
        seen: list[int] = []
        for _ in range(contexts // (workers * size)):
            for reader in readers:
                seen += numbers(next(reader))
        assert len(seen) == len(set(seen)) > contexts - workers * size
        epochs.append(seen)
    if contexts > 20:
        assert epochs[0] != epochs[1]


def test_what_all_workers_read_in_a_step_does_not_depend_on_their_number() -> None:
    def step(workers: int, size: int) -> set[int]:
        readers = (
            ContextBatches(row(100), 4, size, worker=w, workers=workers, seed=3) for w in range(workers)
        )
        return {number for reader in readers for number in numbers(next(reader))}

    assert step(1, 12) == step(3, 4) == step(12, 1)


def test_the_seed_sets_the_order() -> None:
    def first(seed: int) -> list[int]:
        return numbers(next(ContextBatches(row(100), 4, 8, seed=seed)))

    assert first(1) == first(1) != first(2)


@settings(max_examples=40, deadline=None)
@given(before=st.integers(0, 30), contexts=st.integers(8, 40))
def test_going_on_gives_what_would_have_come(before: int, contexts: int) -> None:
    whole = ContextBatches(row(contexts), 4, 2, worker=1, workers=3, seed=5)
    for _ in range(before):
        next(whole)
    state = json.loads(json.dumps(whole.state_dict()))
    resumed = ContextBatches(row(contexts), 4, 2, worker=1, workers=3, seed=5)
    resumed.load_state_dict(state)
    for _ in range(20):
        assert torch.equal(next(whole), next(resumed))


def test_other_numbers_of_workers_go_on_without_reading_again() -> None:
    readers = [ContextBatches(row(64), 4, 2, worker=w, workers=4) for w in range(4)]
    seen = {number for _ in range(3) for reader in readers for number in numbers(next(reader))}
    two = [ContextBatches(row(64), 4, 2, worker=w, workers=2) for w in range(2)]
    for reader in two:
        reader.load_state_dict(readers[0].state_dict())
    rest = {number for _ in range(10) for reader in two for number in numbers(next(reader))}
    assert len(seen) == 24 and len(rest) == 40 and not seen & rest


def test_too_little_text_for_one_step() -> None:
    with pytest.raises(DataError, match=r"7 contexts of 4 tokens(.|\n)*4 workers takes 8"):
        ContextBatches(row(7), 4, 2, worker=0, workers=4)


def stream(worker: int, workers: int, texts: int = 23) -> StreamBatches:
    made = Corpus("made", "made", lambda skip: (f"<document {k}>" for k in range(skip, texts)))
    return StreamBatches(made, Bytes(), 0.1, (2, 8), worker, workers)


def test_streams_of_workers_share_no_document() -> None:
    texts = [bytes(t for t in next(s).flatten().tolist() if t < 256) for s in (stream(0, 2), stream(1, 2))]
    assert texts[0].startswith(b"<document 0>") and texts[1].startswith(b"<document 1>")


@pytest.mark.parametrize("before", [0, 1, 5, 40])
def test_a_stream_goes_on_exactly_and_over_its_end(before: int) -> None:
    whole = stream(1, 2)
    for _ in range(before):
        next(whole)
    resumed = stream(1, 2)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for _ in range(40):
        assert torch.equal(next(whole), next(resumed))
    assert resumed.state_dict() == whole.state_dict() and whole.epoch > 0


def test_a_stream_of_too_few_documents_does_not_hang() -> None:
    with pytest.raises(DataError, match="makes 0 contexts"):
        next(stream(5, 6, texts=2))


def test_a_stream_of_blank_documents_does_not_hang() -> None:
    blank = Corpus("blank", "blank", lambda skip: iter([""] * (90 - skip)))
    with pytest.raises(DataError, match="makes 0 contexts"):
        next(StreamBatches(blank, Bytes(), 0.1, (2, 8), 0, 2))


def test_first_tokens_of_a_stream_are_held_out_ones() -> None:
    made = Corpus("made", "made", lambda skip: (f"{k:03d}" for k in range(skip, 100)))
    tokens = first_tokens(made, Bytes(), 0.1, 8)
    assert bytes(tokens[:3].tolist()) == b"005" and tokens[3] == 256 and bytes(tokens[4:7].tolist()) == b"015"


@settings(max_examples=40, deadline=None)
@given(workers=st.integers(1, 5), contexts=st.integers(1, 40), limit=st.integers(0, 50))
def test_validation_is_shared_out_whole(workers: int, contexts: int, limit: int) -> None:
    parts = [validation(row(contexts), 4, 3, worker=w, workers=workers, limit=limit) for w in range(workers)]
    seen = sorted(number for part in parts for batch in part for number in numbers(batch))
    assert len(seen) == len(set(seen)) == (min(limit, contexts) if limit else contexts)


def test_no_whole_validation_context() -> None:
    with pytest.raises(DataError, match=r"validation text makes 0 contexts"):
        validation(row(1)[:3], 4, 1, worker=0, workers=1, limit=0)
