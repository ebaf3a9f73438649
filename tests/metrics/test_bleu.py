"""BLEU beside sacrebleu's own command line, and the tokenizer of each language."""

from __future__ import annotations

import json
import logging
import math
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hf_decentral import data
from hf_decentral.errors import SettingsError
from hf_decentral.metrics import bleu, corpus_bleu

CHINESE = (["我们在北京的大学里学习机器翻译。"], ["我们在北京大学学习机器翻译。"])


def prose(count: int, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    """Sentences of the package's text with words left out and moved, and two references for each."""
    rng = random.Random(seed)
    text = (Path(data.__file__).parent / "tiny" / "text.txt").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if len(line.split()) > 6][:count]
    predictions, others = [], []
    for line in lines:
        words = [word for word in line.split() if rng.random() > 0.15]
        others.append(" ".join(words))
        cut = rng.randrange(len(words))
        predictions.append(" ".join(words[cut:] + words[:cut]))
    return predictions, lines, others


def command_line(folder: Path, predictions: list[str], references: list[list[str]], *flags: str) -> dict:
    """What ``sacrebleu`` prints; ``references``: the files, one line for each sentence."""
    files = [folder / "predictions", *(folder / f"references{k}" for k in range(len(references)))]
    for path, lines in zip(files, [predictions, *references], strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "sacrebleu",
            *map(str, files[1:]),
            "-i",
            str(files[0]),
            "-m",
            "bleu",
            "-w",
            "10",
        ]
        + list(flags),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    found: dict = json.loads(told.stdout)
    return found


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {"target_lang": "de_DE"}),
        (["-lc"], {"lowercase": True}),
        (["-tok", "intl"], {"tokenize": "intl"}),
    ],
    ids=["13a", "lower-case", "intl"],
)
def test_score_and_signature_are_the_command_lines(tmp_path, flags, options):
    predictions, references, _ = prose(80)
    predictions[3], references[5] = "", ""
    predictions[7] = predictions[7].upper()
    expected = command_line(tmp_path, predictions, [references], *flags)
    scored = bleu(predictions, references, **options)
    assert 1 < scored.score < 99
    assert scored.score == pytest.approx(expected["score"], abs=1e-8)
    assert scored.signature == expected["signature"]


def test_two_references_and_chinese_are_the_command_lines(tmp_path):
    predictions, first, second = prose(40)
    expected = command_line(tmp_path, predictions, [first, second])
    scored = bleu(predictions, list(zip(first, second, strict=True)))
    assert scored.score == pytest.approx(expected["score"], abs=1e-8)
    assert scored.signature == expected["signature"]
    assert "nrefs:2" in scored.signature

    expected = command_line(tmp_path, CHINESE[0], [CHINESE[1]], "-tok", "zh")
    scored = bleu(*CHINESE, target_lang="zh_CN")
    assert scored.score == pytest.approx(expected["score"], abs=1e-8)
    assert scored.signature == expected["signature"]


def test_uneven_numbers_of_references():
    from sacrebleu.metrics import BLEU

    predictions = ["the cat sat on the mat", "it rains in the north", "nothing at all"]
    scored = bleu(
        predictions, [["a cat sat on the mat", "the cat is on the mat"], "it rains up north", ["no"]]
    )
    direct = BLEU().corpus_score(
        predictions,
        [["a cat sat on the mat", "it rains up north", "no"], ["the cat is on the mat", None, None]],
    )
    assert scored.score == direct.score
    assert scored.predicted_tokens == direct.sys_len == 14
    assert "nrefs:var" in scored.signature
    # A second reference can only add matches, and its place in the list does not matter.
    fewer = bleu(predictions, ["the cat is on the mat", "it rains up north", "no"])
    assert all(more >= less for more, less in zip(scored.counts, fewer.counts, strict=True))
    turned = bleu(
        predictions, [["the cat is on the mat", "a cat sat on the mat"], "it rains up north", ["no"]]
    )
    assert turned == scored


def test_worked_by_hand():
    scored = bleu(["a b c d"], ["a b c d e"])
    assert scored.brevity_penalty == pytest.approx(math.exp(1 - 5 / 4))
    assert scored.score == pytest.approx(100 * math.exp(-0.25))
    assert scored.counts == scored.totals == (4, 3, 2, 1)
    assert (scored.predicted_tokens, scored.reference_tokens) == (4, 5)


def test_source_equal_to_target_empty_sentences_and_no_match():
    _, lines, _ = prose(5)
    assert bleu(lines, lines).score == pytest.approx(100)
    assert bleu(["", ""], ["a b c d", "e"]).score == 0
    assert bleu(["", ""], ["", ""]).score == 0
    assert bleu(["a b c d"], [""]).score == 0
    assert bleu(["a b c d"], ["w x y z"]).score == 0
    # Right, and too short for a single 4-gram.
    assert (
        bleu(["a b c"], ["a b c"]).precisions == (100, 100, 100, 0) and bleu(["a b c"], ["a b c"]).score == 0
    )
    # An empty prediction costs length and nothing else.
    assert bleu(["a b c d e", ""], ["a b c d e", "f g"]).precisions == (100, 100, 100, 100)


def test_one_score_of_the_corpus_whatever_the_shards():
    predictions, references, _ = prose(31)
    whole = bleu(predictions, references)
    for workers in (1, 2, 3):
        order = [k for worker in range(workers) for k in range(worker, len(predictions), workers)]
        assert bleu([predictions[k] for k in order], [references[k] for k in order]) == whole
    parts = [bleu(predictions[k::2], references[k::2]).score for k in range(2)]
    assert sum(parts) / 2 != pytest.approx(whole.score, abs=1e-6)


@pytest.mark.parametrize(
    "code", ["zh", "zh_CN", "zh-TW", "zho_Hans", "zho_Hant", "cmn_Hans", "__zh__", "Chinese"]
)
def test_chinese_is_cut_into_characters(code):
    assert "tok:zh" in bleu(*CHINESE, target_lang=code).signature


def test_the_tokenizer_shows_in_score_and_signature():
    plain, chinese = bleu(*CHINESE), bleu(*CHINESE, target_lang="zh")
    assert "tok:13a" in plain.signature
    assert plain.score == 0 < 50 < chinese.score
    assert bleu(*CHINESE, target_lang="zh", tokenize="13a") == plain
    house = (["Das ist ein Haus."], ["das ist ein haus."])
    assert bleu(*house, lowercase=True).score == pytest.approx(100)
    assert bleu(*house).score < 99


@pytest.mark.parametrize(
    "code", [None, "", "de", "de_DE", "deu_Latn", "fr-FR", "kon_Latn", "German", "jav_Latn"]
)
def test_other_languages_take_13a(code):
    assert corpus_bleu.tokenizer_for(code) == "13a"


@pytest.mark.parametrize(
    ("code", "cutter", "module"),
    [(code, "ja-mecab", "MeCab") for code in ("ja", "ja_XX", "jpn_Jpan")]
    + [(code, "ko-mecab", "mecab_ko") for code in ("ko", "ko_KR", "kor_Hang")],
)
def test_japanese_and_korean_say_so_where_words_cannot_be_cut(code, cutter, module, caplog, monkeypatch):
    corpus_bleu.tokenizer_for.cache_clear()
    with caplog.at_level(logging.WARNING):
        found = {corpus_bleu.tokenizer_for(code) for _ in range(2)}
    if find_spec(module):
        assert found == {cutter} and not caplog.records
    else:
        assert found == {"char"}
        [record] = caplog.records
        assert f"{cutter} is not installed" in record.getMessage() and "'char'" in record.getMessage()
    corpus_bleu.tokenizer_for.cache_clear()
    monkeypatch.setattr(corpus_bleu, "find_spec", lambda name: object())
    assert corpus_bleu.tokenizer_for(code) == cutter
    corpus_bleu.tokenizer_for.cache_clear()


def test_tokenizers_that_are_not_here(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match=r"Unknown tokenizer(.|\n)*mean 'flores200'\?"):
        bleu(["a"], ["a"], tokenize="flores20")
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    for name in ("flores200", "flores101", "spm"):
        with pytest.raises(SettingsError, match="Nothing is downloaded"):
            bleu(["a"], ["a"], tokenize=name)
    if not find_spec("MeCab"):
        with pytest.raises(SettingsError, match=r"'ja-mecab' of BLEU cannot be used(.|\n)*sacrebleu\[ja\]"):
            bleu(["a"], ["a"], tokenize="ja-mecab")


def test_without_sacrebleu(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(
        SettingsError, match=r"package sacrebleu is not installed(.|\n)*hf-decentral\[metrics\]"
    ):
        bleu(["a"], ["a"])
