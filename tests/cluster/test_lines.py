"""Latency and rate from messages of known times."""

from __future__ import annotations

import pytest

from hf_decentral.cluster.lines import Row, line, row, straight

SIZES = [1024 * 4**k for k in range(8)]


def test_a_straight_line_is_found_exactly():
    latency, per_byte = straight(SIZES, [2e-3 + size * 4e-8 for size in SIZES])
    assert latency == pytest.approx(2e-3) and per_byte == pytest.approx(4e-8)


@pytest.mark.parametrize(("which", "factor"), [(1, 5), (3, 5), (6, 2), (7, 1.2)])
def test_one_size_that_is_off_changes_little(which: int, factor: float):
    seconds = [2e-3 + size * 4e-8 for size in SIZES]
    seconds[which] *= factor
    latency, per_byte = straight(SIZES, seconds)
    assert latency == pytest.approx(2e-3, rel=0.1) and per_byte == pytest.approx(4e-8, rel=0.12)


def test_a_burst_that_passes_unshaped_gives_no_negative_latency():
    burst = 64 * 1024
    seconds = [1e-4 + max(0, size - burst) * 4e-8 for size in SIZES]
    latency, per_byte = straight(SIZES, seconds)
    assert 0 <= latency <= 1e-3 and per_byte == pytest.approx(4e-8, rel=0.05)


def test_links_too_fast_to_be_seen_have_a_rate_all_the_same():
    latency, per_byte = straight([1024, 4096, 16384], [1e-3, 0.9e-3, 0.8e-3])
    assert latency >= 0 and per_byte > 0


def test_a_row_has_quartiles_and_a_line_the_spread_of_its_largest_sizes():
    small = row(1000, [1.0, 2.0, 9.0])
    assert (small.seconds, small.low, small.high, small.repeats) == (2.0, 1.5, 5.5, 3)
    assert small.spread == pytest.approx(2.0)
    rows = [small, Row(2000, 4.0, 3.9, 4.1, 5), Row(4000, 8.0, 7.8, 8.6, 5)]
    found = line(rows, [1.0])
    assert found.spread == pytest.approx(0.1)
    assert found.bits_per_second == pytest.approx(8 / 2e-3, rel=0.1)
