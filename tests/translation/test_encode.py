"""Pairs to tokens, with the tokenizers that people have."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import transformers

from hf_decentral.errors import SettingsError
from hf_decentral.translation import encode, language_id, lengths, load_pairs, load_vocabulary, set_languages

PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
PIECES += [(letter, -3.0) for letter in "abcdefghijklmnopqrstuvwxyz"]


def mbart() -> Any:
    return transformers.MBartTokenizer(vocab=list(PIECES))


def mbart50() -> Any:
    return transformers.MBart50Tokenizer(vocab=list(PIECES))


def nllb() -> Any:
    return transformers.NllbTokenizer(vocab={piece: k for k, (piece, _) in enumerate(PIECES)}, merges=[])


def pairs(*rows: tuple[str, str]) -> Any:
    return datasets.Dataset.from_dict(
        {"source": [one for one, _ in rows], "target": [other for _, other in rows]}
    )


def test_it_is_what_the_tokenizer_gives(vocabulary: Any, tiny: Any) -> None:
    made = encode(tiny["test"], vocabulary)
    assert sorted(made.column_names) == ["attention_mask", "input_ids", "labels"]
    for row, text in zip(made, tiny["test"], strict=True):
        wanted = vocabulary(text["source"], text_target=text["target"])
        assert row == dict(wanted)
    sizes = lengths(made)
    assert sizes.shape == (len(made), 2) and sizes.dtype == np.int64
    assert sizes.tolist() == [[len(row["input_ids"]), len(row["labels"])] for row in made]
    chosen = made.select([3, 1])
    assert lengths(chosen).tolist() == sizes[[3, 1]].tolist()


def test_blank_and_empty(vocabulary: Any) -> None:
    assert encode(pairs(("", "")), vocabulary)[0] == {"input_ids": [1], "attention_mask": [1], "labels": [1]}
    assert lengths(encode(pairs(("a", "b")), vocabulary).select([])).shape == (0, 2)


def test_long_sentences_are_cut_before_their_eos_and_counted(
    vocabulary: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pairs(("a b c d e f", "x"), ("a", "u v w x y z"), ("a b c d e f", "u v w x y z"), ("a", "x"))
    with caplog.at_level(logging.WARNING, logger="hf_decentral"):
        made = encode(rows, vocabulary, max_source_length=4, max_target_length=3)
    assert lengths(made).tolist() == [[4, 3], [2, 3], [4, 3], [2, 3]]  # "x" just fits
    whole = vocabulary("a b c d e f")["input_ids"]
    assert (
        made[0]["input_ids"] == [*whole[:3], vocabulary.eos_token_id] and made[0]["attention_mask"] == [1] * 4
    )
    assert all(row["labels"][-1] == vocabulary.eos_token_id for row in made)
    assert ["3 of 4 pairs" in message for message in caplog.messages] == [True]
    assert "cut" not in made.column_names


def test_a_length_without_room(vocabulary: Any) -> None:
    with pytest.raises(SettingsError, match="max_target_length=1"):
        encode(pairs(("a", "b")), vocabulary, max_target_length=1)


def test_a_prefix_stands_before_each_source(vocabulary: Any) -> None:
    made = encode(pairs(("house", "Haus")), vocabulary, prefix="translate: ")
    assert vocabulary.decode(made[0]["input_ids"], skip_special_tokens=True) == "translate: house"
    assert vocabulary.decode(made[0]["labels"], skip_special_tokens=True) == "Haus"


def test_a_second_run_finds_the_first_ones_result(real: dict[str, Path], tmp_path: Path) -> None:
    loaded = load_pairs("en", "de", **real, limit=50)["train"]
    vocabulary = load_vocabulary(loaded)
    first = encode(loaded, vocabulary, max_source_length=20)
    # A tokenizer that was used, padded and truncated in between, and one that was loaded afresh.
    vocabulary(["a", "b c d"], padding=True, truncation=True, max_length=2)
    for tokenizer in (vocabulary, load_vocabulary(loaded)):
        again = encode(loaded, tokenizer, max_source_length=20)
        assert again.cache_files == first.cache_files and again.to_dict() == first.to_dict()
    other = encode(loaded, vocabulary, max_source_length=10)
    assert other.cache_files != first.cache_files and lengths(other)[:, 0].max() == 10


@pytest.mark.parametrize(("make", "german"), [(mbart, "de_DE"), (mbart50, "de_DE"), (nllb, "deu_Latn")])
def test_multilingual_tokenizers_are_told_their_languages(make: Any, german: str) -> None:
    tokenizer = make()
    english = "eng_Latn" if make is nllb else "en_XX"
    made = encode(pairs(("ab", "cd")), tokenizer, source_lang=german, target_lang=english)
    codes = tokenizer.convert_tokens_to_ids([german, english])
    assert codes[0] in made[0]["input_ids"] and codes[1] not in made[0]["input_ids"]
    assert codes[1] in made[0]["labels"] and codes[0] not in made[0]["labels"]
    assert language_id(tokenizer, english) == codes[1]
    # The other way round is another result, with the same tokenizer.
    turned = encode(pairs(("ab", "cd")), tokenizer, source_lang=english, target_lang=german)
    assert codes[1] in turned[0]["input_ids"] and codes[0] in turned[0]["labels"]
    # Truncated, the language is still there.
    short = encode(
        pairs(("abcdefgh", "cdefghij")),
        tokenizer,
        max_source_length=5,
        max_target_length=4,
        source_lang=german,
        target_lang=english,
    )
    assert lengths(short).tolist() == [[5, 4]]
    assert {codes[0], tokenizer.eos_token_id} < set(short[0]["input_ids"])
    assert {codes[1], tokenizer.eos_token_id} < set(short[0]["labels"])


def test_a_language_without_its_region() -> None:
    tokenizer = mbart()
    set_languages(tokenizer, "de", "en")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("de_DE", "en_XX")


@pytest.mark.parametrize(
    ("make", "language", "near"),
    [
        (mbart, "de_AT", "de_DE"),
        (mbart, "EN_xx", "en_XX"),
        (nllb, "de", "deu_Latn"),
        (nllb, "zho", "zho_Hans"),
    ],
)
def test_an_unknown_language_lists_near_ones(make: Any, language: str, near: str) -> None:
    with pytest.raises(SettingsError, match=rf"{language}(.|\n)*language codes(.|\n)*{near}"):
        encode(pairs(("a", "b")), make(), source_lang=language, target_lang="en")


def test_other_tokenizers_need_no_language(vocabulary: Any) -> None:
    made = encode(pairs(("a", "b")), vocabulary, source_lang="en", target_lang="de")
    assert made[0]["input_ids"] == vocabulary("a")["input_ids"]
    assert language_id(vocabulary, "de") is None
