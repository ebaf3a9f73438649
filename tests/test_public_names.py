"""What ``hf_decentral`` offers, and that importing it stays cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hf_decentral

NAMES = {
    "AccumAdam",
    "AccumAdamW",
    "DecentralizedError",
    "DecentralizedPlugin",
    "DecentralizedSeq2SeqTrainer",
    "DecentralizedSeq2SeqTrainingArguments",
    "DecentralizedTrainer",
    "DecentralizedTrainingArguments",
    "averaging",
    "decentralize",
    "gossip",
    "plan",
    "simulate",
    "topology",
}


def test_all_is_what_there_is():
    assert set(hf_decentral.__all__) == NAMES
    assert set(dir(hf_decentral)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_is_there_and_documented(name):
    assert getattr(hf_decentral, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="gosip"):
        hf_decentral.gosip  # noqa: B018


def test_importing_the_package_brings_no_framework():
    heavy = "[m for m in ('torch', 'transformers', 'datasets', 'accelerate') if m in sys.modules]"
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, hf_decentral; print({heavy})"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert told.stdout.strip() == "[]"
