"""One vocabulary for both languages: exact, ended by eos, the same for every worker, kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_decentral.errors import SettingsError
from hf_decentral.translation import load_pairs, load_vocabulary
from hf_decentral.translation.pairs import clean
from hf_decentral.translation.vocabulary import SMALLEST

ODD = [
    "",
    "Hello, isn't it ?",
    "a </s> b <pad><s>",
    "Schön 😀 \u3000é",
    "ﬁ ½ ＡＢ",
    "\u200b\u00a0x",
    "e\u0301",
]


def back(vocabulary: Any, text: str) -> str:
    return str(vocabulary.decode(vocabulary(text)["input_ids"], skip_special_tokens=True))


@pytest.mark.parametrize("text", ODD)
def test_odd_text_comes_back(vocabulary: Any, text: str) -> None:
    assert back(vocabulary, text) == clean(text)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_any_text_comes_back(vocabulary: Any, text: str) -> None:
    text = clean(text)
    tokens = vocabulary(text)["input_ids"]
    assert back(vocabulary, text) == text
    assert tokens[-1] == vocabulary.eos_token_id
    assert not set(tokens[:-1]) & set(vocabulary.all_special_ids)


def test_real_sentences_come_back(real: dict[str, Path]) -> None:
    pairs = load_pairs("en", "de", **real, limit=2_000)
    vocabulary = load_vocabulary(pairs["train"], 1_000)
    assert len(vocabulary) == 1_000
    for text in [*pairs["test"]["source"], *pairs["test"]["target"]]:
        assert back(vocabulary, text) == text


def test_a_small_text_has_a_small_vocabulary(vocabulary: Any, tiny: Any) -> None:
    assert 400 < len(vocabulary) < 1_000
    assert len(load_vocabulary(tiny["train"], 300)) == 300
    assert len(load_vocabulary(tiny["train"].select(range(3)))) == SMALLEST
    with pytest.raises(SettingsError, match="vocabulary_size=259"):
        load_vocabulary(tiny["train"], 259)


def test_a_word_is_one_token_wherever_it_stands(vocabulary: Any) -> None:
    first = vocabulary("the")["input_ids"][:-1]
    assert len(first) == 1 and vocabulary("of the")["input_ids"][-2] == first[0]


def test_what_transformers_expects(vocabulary: Any) -> None:
    ids = [getattr(vocabulary, f"{name}_token_id") for name in ("pad", "eos", "unk", "bos")]
    assert ids == [0, 1, 2, 3]
    assert isinstance(vocabulary, transformers.PreTrainedTokenizerFast)
    made = vocabulary(["a b", "c"], text_target=["d", "e f"])
    assert sorted(made) == ["attention_mask", "input_ids", "labels"]
    assert all(tokens[-1] == 1 for tokens in [*made["input_ids"], *made["labels"]])
    assert vocabulary("a b c d e f", truncation=True, max_length=3)["input_ids"][-1] == 1
    assert vocabulary.decode([3, *vocabulary("a b")["input_ids"], 0, 0], skip_special_tokens=True) == "a b"


def test_it_is_kept_and_follows_the_text_alone(tiny: Any, tmp_path: Path) -> None:
    def files(pairs: Any, cache: Path) -> dict[str, Any]:
        load_vocabulary(pairs, 400, str(cache))
        return {
            path.parent.name: json.loads(path.read_text()) for path in cache.rglob("vocab*/*/tokenizer.json")
        }

    first = files(tiny["train"], tmp_path / "one")
    copied = datasets.Dataset.from_dict(tiny["train"].to_dict())
    assert files(copied, tmp_path / "one") == first and len(first) == 1
    assert files(copied, tmp_path / "other") == first  # another host trains the same one
    assert len(files(tiny["test"], tmp_path / "one")) == 2
