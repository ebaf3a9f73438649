"""Blocks of steps in real processes: what is counted, and that both ways of keeping models give it."""

from __future__ import annotations

import math

import pytest
import torch

from hf_decentral.bench.measure import Bench, Sample
from hf_decentral.bench.settings import Settings
from hf_decentral.bench.world import World
from tests.processes import run

PARAMETER_BYTES = 100_000
SETTINGS = Settings(
    emulate_ms=4, emulate_mb=PARAMETER_BYTES / 1e6, steps=2, slow_worker=1, slowdown=3.0,
    variants=["ddp,ddp_tuned,ring,decent_dp:ring"],
)  # fmt: skip
BLOCKS = 2


def benched(rank: int, workers: int, keep: bool) -> tuple[dict[str, list[Sample]], dict, dict, int]:
    bench = Bench(SETTINGS, World(rank, workers, 1, torch.device("cpu"), False, workers))
    if not keep:
        bench._room_for_all = lambda: False  # type: ignore[method-assign]
    bench.tune()
    bench.first()
    for number in range(BLOCKS):
        bench.block(number)
    found = bench.found
    return (
        {name: each.samples for name, each in found.items()},
        {name: each.notes for name, each in found.items()},
        bench.left_out,
        len(bench._kept),
    )


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "built for each block"])
def test_blocks_of_two_workers(keep: bool):
    for worker, (samples, notes, left_out, kept) in enumerate(run(2, benched, 2, keep)):
        assert not left_out
        assert list(samples) == ["none", "ddp", "ddp_tuned", "ring", "decent_dp:ring"]
        assert kept == (len(samples) if keep else 0)
        for name, blocks in samples.items():
            assert len(blocks) == BLOCKS
            # who sleeps longer on purpose is never faster than that
            assert all(each.seconds >= 0.004 * (3 if worker == 1 else 1) for each in blocks), name
            assert all((each.waited_seconds is None) == (name != "ring") for each in blocks), name
            sent = [each.sent_bytes for each in blocks]
            if name == "none":
                assert max(sent) < 5_000
            else:
                assert min(sent) > 0.97 * PARAMETER_BYTES, name
            if name == "ring":
                assert max(sent) < 1.1 * PARAMETER_BYTES
        assert set(notes["ddp_tuned"]["tried_seconds"]) == {"default", "1mb", "4mb", "10mb"}
        best = min(notes["ddp_tuned"]["tried_seconds"].items(), key=lambda each: each[1])
        assert notes["ddp_tuned"]["bucket"] == best[0]


def test_what_others_cannot_do_is_left_out_on_all_workers():
    # A ring of theirs needs an even number of workers.
    for samples, _, left_out, _ in run(3, benched, 3, True):
        assert list(left_out) == ["decent_dp:ring"]
        assert "decent_dp:ring" not in samples
        assert all(math.isfinite(each.seconds) for blocks in samples.values() for each in blocks)
