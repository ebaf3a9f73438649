"""Pairs out of files, datasets and the package, and what is said about those that cannot be read."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import datasets
import pytest

from hf_decentral.errors import DataError, SettingsError
from hf_decentral.translation import load_pairs
from hf_decentral.translation.pairs import clean

ROWS = [("One.", "Eins."), ("Two.", "Zwei."), ("Three.", "Drei.")]


def lines(*pairs: tuple[Any, Any]) -> bytes:
    rows = ({"translation": {"en": one, "de": other}} for one, other in pairs)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write(path: Path, raw: bytes) -> Path:
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def rows(split: Any) -> list[tuple[str, str]]:
    return list(zip(split["source"], split["target"], strict=True))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.json.gz"])
def test_files_of_translations(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, lines(*ROWS))
    found = load_pairs("de", "en", train=path, test=str(path))
    assert sorted(found) == ["test", "train"]
    for split in found.values():
        assert split.column_names == ["source", "target"]
        assert rows(split) == [(other, one) for one, other in ROWS]


def test_two_columns(tmp_path: Path) -> None:
    raw = b'{"en": "One.", "de": "Eins.", "text": "x", "summary": null}\n'
    path = write(tmp_path / "a.jsonl", raw)
    assert rows(load_pairs("en", "de", train=path)["train"]) == [("One.", "Eins.")]
    named = load_pairs("en", "de", test=path, source_column="text", target_column="summary")
    assert rows(named["test"]) == [("x", "")]


def test_regions_are_not_part_of_the_language(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(*ROWS))
    assert rows(load_pairs("en_XX", "de-AT", train=path)["train"]) == ROWS


def test_marks_line_ends_and_controls(tmp_path: Path) -> None:
    one = "\ufeff Tab\there, \x07bell,\r\nline\u2028end \x00zero "
    raw = b"\xef\xbb\xbf" + lines((one, "Ein\u00a0s\u00ad")).replace(b"\n", b"\r\n") + b"\r\n"
    raw += b'\xef\xbb\xbf{"translation": {"en": "raw \t tab", "de": "half \\ud83d"}}'
    found = load_pairs("en", "de", test=write(tmp_path / "a.jsonl", raw))
    assert rows(found["test"]) == [
        ("Tab here, bell, line end zero", "Ein\u00a0s\u00ad"),
        ("raw   tab", "half \ufffd"),
    ]


@pytest.mark.parametrize("text", ["a\vb", "a\x1cb", "a\x85b", "a\r\n\r\nb", "a\u2029b", "a \u200b b"])
def test_a_clean_text_is_one_line(text: str) -> None:
    assert len(clean(text).splitlines()) == 1 and clean(clean(text)) == clean(text)
    assert clean(text).replace("\u200b", "").split() == ["a", "b"]


def test_blank_sides_are_dropped_from_training_only_and_equal_ones_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [("One.", "Eins."), ("", "Leer."), ("Blank.", " \n"), ("null", None), ("Same.", "Same.")]
    path = write(tmp_path / "a.jsonl", lines(*pairs))
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="hf_decentral"):
            found = load_pairs("en", "de", train=path, validation=path, test=path)
        assert rows(found["train"]) == [("One.", "Eins."), ("Same.", "Same.")]
        assert rows(found["test"]) == rows(found["validation"])
        assert rows(found["test"])[1:4] == [("", "Leer."), ("Blank.", ""), ("null", "")]
        assert [message for message in caplog.messages if "3 of 5" in message and str(path) in message]


BAD = {
    "empty.jsonl": (b"", "holds no pairs"),
    "blank.jsonl": (b"\n \r\n", "holds no pairs"),
    "torn.jsonl": (lines(*ROWS) + b'\n{"translation": {"en": "x', r"line 5 of '[^']*torn\.jsonl' is no JSON"),
    "list.jsonl": (lines(*ROWS) + b"[1]\n", r"line 4 of .*it is a list"),
    "deep.jsonl": (b'{"a": ' + b"[" * 200_000, r"line 1 of"),
    "zero.jsonl": (lines(*ROWS) + b"\0\0", "zero bytes"),
    "latin.jsonl": (lines(*ROWS) + b'{"en": "\xf6"}\n', "not UTF-8.*line 4"),
    "number.jsonl": (lines(*ROWS) + lines((1, "Eins.")), r"'en' of line 4 of .*holds int values"),
    "language.jsonl": (b'{"translation": {"en": "a", "fr": "b"}}', r"no language 'de'(.|\n)*'en', 'fr'"),
    "columns.jsonl": (
        b'{"en": "a", "german": "b"}',
        r"no column 'de'(.|\n)*'en', 'german'(.|\n)*--target_col",
    ),
    "sides.jsonl": (lines(("", "a"), ("b", " ")), "all 2 training rows of .*are blank"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_a_sentence(tmp_path: Path, name: str) -> None:
    raw, expected = BAD[name]
    path = write(tmp_path / name, raw)
    with pytest.raises(DataError, match=f"(?i){expected}") as caught:
        load_pairs("en", "de", train=path)
    assert name in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_a_torn_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines(*ROWS * 500))[:-30])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz.*cannot be read"):
        load_pairs("en", "de", train=path)


def test_missing_files_and_unknown_endings(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        load_pairs("en", "de", test=tmp_path / "a.jsonl")
    with pytest.raises(DataError, match="no known ending"):
        load_pairs("en", "de", test=write(tmp_path / "a.tsv", b"a\tb\n"))


def test_arguments_that_do_not_go_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(*ROWS))
    with pytest.raises(SettingsError, match="Only one column"):
        load_pairs("en", "de", train=path, source_column="text")
    with pytest.raises(SettingsError, match="Both files and the dataset 'wmt14'"):
        load_pairs("en", "de", train=path, dataset_name="wmt14")
    with pytest.raises(SettingsError, match="limit=0"):
        load_pairs("en", "de", train=path, limit=0)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(*ROWS))
    load_pairs("en", "de", train=path)
    write(path, lines(("Four and more.", "Vier.")))
    assert rows(load_pairs("en", "de", train=path)["train"]) == [("Four and more.", "Vier.")]


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", lines(*ROWS) + b"corrupt\n")
    assert rows(load_pairs("en", "de", train=path, limit=2)["train"]) == ROWS[:2]


def folder(kind: str, path: Path) -> str:
    """The same pairs as a dataset of three splits, in one of the forms that are loaded by name."""
    many = [*ROWS, ("", "Leer.")]
    if kind == "jsonl":
        for split in ("train", "dev", "test"):
            write(path / f"{split}.jsonl", lines(*many))
        return str(path)
    translation = datasets.Translation(languages=["de", "en"])
    made = datasets.Dataset.from_dict(
        {"translation": [{"en": one, "de": other} for one, other in many]},
        features=datasets.Features({"translation": translation}),
    )
    if kind == "saved":
        datasets.DatasetDict(train=made, validation=made, test=made).save_to_disk(str(path / "saved"))
        return str(path / "saved")
    for split in ("train", "validation", "test"):
        made.to_parquet(str(path / f"{split}-00000-of-00001.parquet"))
    return str(path)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved"])
def test_a_dataset_by_name(tmp_path: Path, kind: str) -> None:
    name = folder(kind, tmp_path)
    found = load_pairs("de", "en", dataset_name=name)
    assert sorted(found) == ["test", "train", "validation"]
    swapped = [(other, one) for one, other in ROWS]
    assert rows(found["train"]) == swapped
    assert rows(found["test"]) == rows(found["validation"]) == [*swapped, ("Leer.", "")]
    assert rows(load_pairs("de", "en", dataset_name=name, limit=2)["test"]) == swapped[:2]
    with pytest.raises(DataError, match=r"no language 'fr'(.|\n)*'de', 'en'"):
        load_pairs("fr", "en", dataset_name=name)
    with pytest.raises(DataError, match=r"no column 'text'(.|\n)*are 'translation'"):
        load_pairs("de", "en", dataset_name=name, source_column="text", target_column="summary")


def test_a_name_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"nobody/no-such-set:de-en(.|\n)*cannot be loaded(.|\n)*wmt14"):
        load_pairs("de", "en", dataset_name="nobody/no-such-set", dataset_config="de-en")


def test_the_pairs_of_the_package(tiny: Any) -> None:
    assert {split: len(part) for split, part in tiny.items()}.keys() == {"train", "validation", "test"}
    assert sum(map(len, tiny.values())) == 600
    assert len(tiny["train"]) > 400 and len(tiny["validation"]) > 40 and len(tiny["test"]) > 40
    sources = [set(part["source"]) for part in tiny.values()]
    assert not sources[0] & sources[1] and not sources[0] & sources[2] and not sources[1] & sources[2]
    back = load_pairs("de_DE", "en_XX")
    for split, part in tiny.items():
        assert [(one, other) for other, one in rows(back[split])] == rows(part)
    assert len(load_pairs("en", "fr", limit=7)["train"]) == 7
    with pytest.raises(DataError, match=r"'en' to 'it'(.|\n)*en-de, en-fr"):
        load_pairs("en", "it")


def test_real_pairs(real: dict[str, Path]) -> None:
    found = load_pairs("en", "de", **real, limit=300)
    for split, path in real.items():
        with gzip.open(path, "rt", encoding="utf-8") as file:
            wanted = [json.loads(next(file))["translation"] for _ in range(300)]
        assert rows(found[split]) == [(row["en"], row["de"]) for row in wanted]
