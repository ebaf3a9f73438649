"""Figures as they are typed."""

from __future__ import annotations

import pytest

from hf_decentral.cluster.rates import bits_per_second
from hf_decentral.errors import SettingsError
from hf_decentral.planner import units


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("124M", 124e6),
        ("1.5B", 1.5e9),
        ("1.5b", 1.5e9),
        ("124_439_808", 124439808),
        ("124,439,808", 124439808),
        ("2T", 2e12),
        ("350k", 350e3),
        ("1e9", 1e9),
        (" 7 B ", 7e9),
    ],
)
def test_counts(text, value):
    assert units.count("--params", text) == value


@pytest.mark.parametrize("text", ["", "M", "0", "-3M", "12", "999", "11T", "1.2.3M", "124 MB", "nan", "inf"])
def test_no_counts(text):
    with pytest.raises(SettingsError, match="--params"):
        units.count("--params", text)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("25gbit", 25e9),
        ("25 Gbit/s", 25e9),
        ("25Gbps", 25e9),
        ("100mbit", 1e8),
        ("1.6tbit", 1.6e12),
        ("56kbit", 56e3),
        ("PCIe", 160e9),
        ("nvlink", 2e12),
    ],
)
def test_links(text, bits):
    assert bits_per_second(units.link("--link", text)) == pytest.approx(bits)


def test_links_that_nothing_slows_down():
    assert units.link("--intra-link", "none") == "none"


@pytest.mark.parametrize("text", ["25GB/s", "25gb", "25Gb", "25 GBps", "25gb/s", "25gbyte", "25GiB/s"])
def test_bytes_are_asked_back(text):
    with pytest.raises(SettingsError, match="200gbit") as told:
        units.link("--link", text)
    assert "Did you mean 25gbit, or 200gbit?" in str(told.value)


@pytest.mark.parametrize("text", ["25", "fast", "", "gbit", "-1gbit", "25gbit/h", "25 apples"])
def test_no_links(text):
    with pytest.raises(SettingsError, match="25gbit"):
        units.link("--link", text)


@pytest.mark.parametrize(("text", "meant"), [("5000gbit", "5gbit"), ("0.5kbit", "gbit"), ("4tbit", "4gbit")])
def test_implausible_links_are_asked_back(text, meant):
    with pytest.raises(SettingsError, match=rf"mean {meant}\?"):
        units.link("--link", text)


def test_steps():
    assert units.step_seconds("--step-ms", 245, 500e6) == 0.245
    with pytest.raises(SettingsError, match=r"Are these seconds\? Did you mean --step-ms 245\?"):
        units.step_seconds("--step-ms", 0.245, 500e6)
    # 28 GB cannot be read in 2.45 ms by any memory
    with pytest.raises(SettingsError, match=r"2450\?"):
        units.step_seconds("--step-ms", 2.45, 28e9)
    for wrong in (0, -1, 1e9, float("nan")):
        with pytest.raises(SettingsError, match="milliseconds"):
            units.step_seconds("--step-ms", wrong, 500e6)


@pytest.mark.parametrize(
    ("bits", "text"), [(25e9, "25gbit"), (2e12, "2000gbit"), (5e7, "50mbit"), (None, "none")]
)
def test_shown(bits, text):
    assert units.shown(bits) == text
