from __future__ import annotations

import pytest

from hf_decentral.bench.settings import Settings, parse, split
from hf_decentral.errors import SettingsError


def test_both_spellings_of_a_flag():
    for mark in "-_":
        found = parse([f"--workers{mark}per{mark}host", "2", f"--emulate{mark}ms", "5"], "")
        assert (found.workers_per_host, found.emulate_ms) == (2, 5.0)


def test_a_list_is_split_at_its_own_commas_only():
    assert split("none, ddp,every(8, ring),then(complete, 5, every(2, aer))") == [
        "none",
        "ddp",
        "every(8, ring)",
        "then(complete, 5, every(2, aer))",
    ]


def test_variants_with_commas_or_with_blanks():
    assert parse(["--variants", "ddp,ring", "--steps", "3"], "").names == ["none", "ddp", "ring"]
    assert parse(["--variants", "local", "ddp", "ring", "ddp"], "").names == ["none", "ddp", "ring"]


@pytest.mark.parametrize(
    "words",
    [
        ["--hosts", "0"],
        ["--hosts", "1000"],
        ["--workers_per_host", "0"],
        ["--steps", "0"],
        ["--warmup", "-1"],
        ["--link", "fast"],
        ["--emulate_ms", "-5"],
        ["--emulate_ms", "nan"],
        ["--emulate_ms", "5", "--jitter", "1.5"],
        ["--emulate_ms", "5", "--slowdown", "0.5"],
        ["--jitter", "0.5"],
        ["--slow_worker", "1"],
        ["--stepss", "3"],
    ],
)
def test_what_cannot_be_meant(words):
    with pytest.raises(SettingsError):
        parse(words, "")


def test_a_misspelt_flag_offers_the_nearest():
    with pytest.raises(SettingsError, match="'--emulate_ms'"):
        parse(["--emulate_sm", "3"], "")


def test_every_flag_is_explained():
    from dataclasses import fields

    assert all(len(each.metadata["help"]) > 8 for each in fields(Settings))
