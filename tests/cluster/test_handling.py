"""What a worker does with what arrives, timed on a few buckets."""

from __future__ import annotations

import torch

from hf_decentral.cluster.handling import METHODS, handling


def test_every_method_is_timed_and_its_payload_is_that_of_its_codec():
    calls = []
    found = handling(2_000_000, torch.device("cpu"), seconds=0.3, together=lambda: calls.append(1))
    assert found.combine_seconds > 0 and len(calls) == 1 + len(METHODS)
    assert list(found.codings) == list(METHODS)
    assert [round(each.payload, 2) for each in found.codings.values()] == [0.5, 0.5, 0.26, 0.13]
    assert all(each.before_seconds > 0 and each.after_seconds > 0 for each in found.codings.values())


def test_times_grow_with_the_parameters_beyond_what_is_timed():
    small, large = (handling(size, torch.device("cpu"), [], 0.2) for size in (4_000_000, 400_000_000))
    assert large.combine_seconds > 20 * small.combine_seconds and not small.codings


def test_a_handful_of_parameters():
    found = handling(12, torch.device("cpu"), seconds=0.05)
    assert all(each.payload > 0 for each in found.codings.values())
