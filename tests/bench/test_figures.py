"""The figures, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from hf_decentral.bench.figures import cases, memory_cases


def raw(framed: bool = True) -> dict:
    """Two hosts of one worker, three blocks; what is in brackets is seconds, bytes, waited of a step."""

    def worker(*blocks: tuple, held: int = 0, notes: dict | None = None) -> tuple:
        return held, list(blocks), notes or {}

    first = {
        "none": worker((1.0, 0, None), (2.0, 0, None), (1.0, 0, None), held=100),
        "ddp": worker(
            (3.0, 4e6, None), (4.0, 4e6, None), (5.0, 4e6, None), held=150, notes={"bucket": "4mb"}
        ),
        "ring": worker((1.5, 1e6, 0.2), (2.0, 1e6, 0.4), (2.5, 1e6, 0.3), held=130),
    }
    second = {
        "none": worker((1.0, 0, None), (1.0, 0, None), (1.0, 0, None), held=100),
        "ddp": worker((2.0, 5e6, None), (4.0, 5e6, None), (5.0, 5e6, None), held=170),
        "ring": worker((1.0, 2e6, 0.1), (4.0, 2e6, 0.1), (1.0, 2e6, 0.1), held=120),
    }
    return {"workers_per_host": 1, "framed": framed, "found": [first, second], "parameter_bytes": 20}


def test_medians_of_the_slowest_worker_and_ratios_inside_blocks():
    none, ddp, ring = cases(raw(), ["8mbit", "8mbit"])
    assert none["step_seconds"] == 1.0
    assert none["ratio_to_compute"] == none["ratio_to_limit"] == 1.0
    assert ddp["step_seconds"] == 4.0
    assert ddp["bucket"] == "4mb"
    assert (ddp["low"], ddp["high"]) == (3.5, 4.5)
    assert ddp["ratio_to_ddp"] == 1.0
    assert ddp["ratio_to_compute"] == 3.0  # of 3, 2, 5
    assert ddp["ratio_to_limit"] == pytest.approx(0.8)  # of 3, 4, 5 over the 5 seconds of its bytes
    assert ddp["sent_bytes"] == 5e6
    assert ddp["waited_seconds"] == 2.0  # above compute: of 2, 2, 4
    assert ring["ratio_to_ddp"] == 2.0  # of 3 / 1.5, 4 / 4, 5 / 2.5
    assert ring["waited_seconds"] == pytest.approx(0.3)
    assert ring["sent_bytes"] == 2e6
    assert none["hidden_share"] is None
    assert ring["hidden_share"] == pytest.approx(0.85)  # 2e6 bytes take 2 seconds
    assert ddp["hidden_share"] == pytest.approx(0.6)
    assert [case["extra_memory_bytes"] for case in (none, ddp, ring)] == [0, 70, 30]


def test_the_limit_of_each_host_is_its_own_rate():
    ring = cases(raw(), ["1mbit", "16mbit"])[2]
    assert ring["ratio_to_limit"] == pytest.approx(2.5 / 8)  # 1e6 bytes at 1 Mbit/s take 8 seconds


def test_framing_is_added_where_it_was_not_counted():
    ring = cases(raw(framed=False), ["1mbit", "16mbit"])[2]
    assert ring["ratio_to_limit"] == pytest.approx(2.5 / 8 / (1514 / 1448))


def test_without_a_rate_the_limit_is_computing():
    for case in cases(raw(), ["none", "none"]):
        assert case["ratio_to_limit"] == case["ratio_to_compute"]


def test_workers_of_a_host_send_together():
    given = raw() | {"workers_per_host": 2}
    assert cases(given, ["8mbit"])[2]["sent_bytes"] == 3e6


def test_bytes_are_a_mean_since_some_blocks_have_one_exchange_more():
    given = raw()
    given["found"][1]["ring"][1][0] = (1.0, 5e6, 0.1)
    assert cases(given, ["8mbit", "8mbit"])[2]["sent_bytes"] == 3e6


def test_what_nobody_counts_is_none():
    given = raw()
    given["found"][1]["ring"][1][2] = (1.0, None, 0.1)
    assert cases(given, ["8mbit", "8mbit"])[2]["sent_bytes"] is None
    for found in given["found"]:
        del found["ddp"]
    assert cases(given, ["8mbit", "8mbit"])[1]["ratio_to_ddp"] is None


def test_memory_in_units_of_the_parameters():
    ddp, ring = memory_cases(raw())
    assert (ddp["variant"], ring["variant"]) == ("ddp", "ring")
    assert (ddp["memory_above_local"], ring["memory_above_local"]) == (3.5, 1.5)
