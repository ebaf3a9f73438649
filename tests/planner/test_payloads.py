"""What averaging methods send, counted by letting them."""

from __future__ import annotations

import pytest
import torch

from hf_decentral import averaging
from hf_decentral.cluster.measured import Coding
from hf_decentral.planner.payloads import coding, dtype_of, payload
from tests.planner.clusters import CODINGS, cluster

SHARES = {"plain": 1.0, "bf16": 0.5, "fp16": 0.5, "int8": 33 / 128, "int4": 17 / 128, "top_k(0.05)": 0.1}


@pytest.mark.parametrize(("name", "share"), SHARES.items())
def test_bytes_are_those_of_the_codec(name, share):
    """Blocks of 128 numbers have a scale of 4 bytes."""
    assert payload(name).share == pytest.approx(share, rel=1e-3)
    assert payload(name).coded == (name != "plain")


def test_a_plain_average_leaves_nothing_and_codecs_leave_the_more_the_less_they_send():
    left = [payload(name).left for name in ("plain", "bf16", "int8", "int4", "top_k(0.05)")]
    assert left[0] < 1e-7
    assert left == sorted(left)
    assert left[-1] < 1


@pytest.mark.parametrize("name", averaging.names())
def test_every_method_can_be_counted(name):
    found = payload(name)
    assert 0 < found.share <= 2.001
    assert 0 <= found.left < 1


def test_half_precision_makes_the_share_of_the_same_codes_larger():
    assert payload("int8", torch.bfloat16).share == pytest.approx(2 * payload("int8").share)
    assert dtype_of(cluster(about={"dtype": "torch.bfloat16"})) is torch.bfloat16
    assert dtype_of(cluster()) is torch.float32


def test_measured_costs_go_before_estimates():
    measured = cluster(codings=CODINGS)
    assert coding(measured, "int8") == CODINGS["int8"]
    assert coding(measured, "plain") is None
    estimated = coding(measured, "bf16")
    assert isinstance(estimated, Coding)
    assert estimated.before_seconds == pytest.approx(6 / 7 * 0.004)
    assert estimated.after_seconds == pytest.approx(3 / 7 * 0.004)
