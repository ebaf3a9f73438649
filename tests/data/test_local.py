"""Documents out of local files, and what is said about files that cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hf_decentral.data import corpus, local
from hf_decentral.errors import DataError, SettingsError


def write(path: Path, content: str | bytes) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        raw = gzip.compress(raw)
    path.write_bytes(raw)
    return path


def lines(*texts: str, key: str = "text") -> str:
    return "".join(json.dumps({key: text}) + "\n" for text in texts)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_lines_are_documents(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, lines("one", "", "zwei\nZeilen", "drei ☃") + "\n")
    assert list(local.documents(path, "text")) == ["one", "zwei\nZeilen", "drei ☃"]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_plain_text_is_cut_at_blank_lines_and_nothing_is_lost(tmp_path: Path, name: str) -> None:
    paragraphs = [f"paragraph {k} " + "words " * 300 for k in range(20)]
    path = write(tmp_path / name, "\n\n".join(paragraphs))
    found = list(local.documents(path, "text"))
    assert len(found) > 2
    assert all(piece.startswith("paragraph") for piece in found)
    assert "".join(found).replace("\n", "") == "".join(paragraphs)


def test_parquet_is_read_by_column(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"words": ["one", None, "two"], "n": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert list(local.documents(tmp_path / "a.parquet", "words")) == ["one", "two"]
    with pytest.raises(DataError, match=r"no column 'text'(.|\n)*'words', 'n'(.|\n)*--text_column"):
        list(local.documents(tmp_path / "a.parquet", "text"))
    with pytest.raises(DataError, match="holds int64"):
        list(local.documents(tmp_path / "a.parquet", "n"))
    write(tmp_path / "b.parquet", b"no parquet at all")
    with pytest.raises(DataError, match="cannot be read"):
        list(local.documents(tmp_path / "b.parquet", "text"))


def test_a_long_line_is_read_in_pieces_without_tearing_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LINE_CHARACTERS", 7)
    text = "aé☃😀" * 50
    assert "".join(local.documents(write(tmp_path / "a.txt", text), "text")) == text
    record = write(tmp_path / "a.jsonl", json.dumps({"text": text}, ensure_ascii=False) + "\n" + lines("b"))
    assert list(local.documents(record, "text")) == [text, "b"]


def test_marks_within_a_file_and_raw_controls_do_not_stop_it(tmp_path: Path) -> None:
    raw = b'\xef\xbb\xbf{"text": "one"}\r\n\r\n\xef\xbb\xbf{"text": "t\tab"}\r\n{"text": "three"}'
    path = write(tmp_path / "a.jsonl", raw)
    assert list(local.records(path)) == [(1, {"text": "one"}), (3, {"text": "t\tab"}), (4, {"text": "three"})]


BAD = {
    "empty.txt": (b"", "holds no text"),
    "blank.txt": (b" \n\n \n", "holds no text"),
    "empty.jsonl": (b"", "holds no text"),
    "binary.txt": (b"abc\0def" * 10, "looks binary"),
    "utf16.txt": ("some text".encode("utf-16"), "looks binary"),
    "latin.txt": ("good\nsch\xf6n\n".encode("latin-1"), "not UTF-8.*line 2"),
    "torn.txt": ("torn ☃".encode()[:-1], "not UTF-8"),
    "torn.jsonl": (b'{"text": "a"}\n{"text": "b\n', "Line 2 of"),
    "list.jsonl": (b"[1, 2]\n", "it is a list"),
    "key.jsonl": (b'{"body": "a"}\n', "no column 'text'"),
    "number.jsonl": (b'{"text": 3}\n', "holds int values"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_a_sentence(tmp_path: Path, name: str) -> None:
    raw, expected = BAD[name]
    path = write(tmp_path / name, raw)
    with pytest.raises(DataError, match=expected) as caught:
        list(local.documents(path, "text"))
    assert name in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_a_torn_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines(*"abcdefgh" * 500).encode())[:-40])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz.*cannot be read"):
        list(local.documents(path, "text"))


@pytest.mark.parametrize("dataset", ["./nothing", "/no/such/folder", "nothing.jsonl", "a/b/c"])
def test_missing_paths(dataset: str) -> None:
    with pytest.raises(DataError, match="There is no file or folder"):
        corpus.resolve(dataset)


def test_unknown_endings_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no text"):
        corpus.resolve(str(tmp_path))
    write(tmp_path / "a.pdf", b"x")
    with pytest.raises(DataError, match="no known ending"):
        corpus.resolve(str(tmp_path / "a.pdf"))


def test_an_unknown_name_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="cannot be loaded"):
        corpus.resolve("nobody-at-all/no-such-dataset")


def test_a_folder_uses_its_own_validation_file(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", lines(*(f"train {k}" for k in range(50))))
    write(tmp_path / "valid.jsonl", lines("held out"))
    write(tmp_path / "test.jsonl", lines("never read"))
    found = corpus.resolve(str(tmp_path))
    assert [text for _, text in found.train(0.1)] == [f"train {k}" for k in range(50)]
    assert list(found.valid(0.1)) == ["held out"]


def test_names_that_only_begin_like_a_split_are_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "test-drive.txt", "a")
    write(tmp_path / "validity.txt", "b")
    write(tmp_path / "validation-00000-of-00001.txt", "c")
    found = corpus.resolve(str(tmp_path))
    assert [text for _, text in found.train(0.5)] == ["a", "b"]
    assert list(found.valid(0.5)) == ["c"]


def test_the_split_by_position_is_disjoint_and_complete_and_can_be_entered_anywhere(tmp_path: Path) -> None:
    texts = [f"document {k}" for k in range(103)]
    found = corpus.resolve(str(write(tmp_path / "a.jsonl", lines(*texts))))
    train = list(found.train(0.05))
    valid = list(found.valid(0.05))
    assert sorted([text for _, text in train] + valid) == sorted(texts)
    assert len(valid) == 5
    assert list(found.train(0.05, skip=40)) == [pair for pair in train if pair[0] >= 40]


@pytest.mark.parametrize("fraction", [0.0, -0.1, 0.9, 1.0])
def test_a_share_that_leaves_nothing(fraction: float) -> None:
    with pytest.raises(SettingsError, match="validation_fraction"):
        corpus.check_fraction(fraction)


def test_the_fingerprint_follows_the_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one")
    before = corpus.resolve(str(path)).fingerprint
    assert corpus.resolve(str(path)).fingerprint == before
    write(path, "two, longer")
    assert corpus.resolve(str(path)).fingerprint != before


def test_a_saved_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": ["a", None, "b", "c"]})
    rows.save_to_disk(str(tmp_path / "saved"))
    found = corpus.resolve(str(tmp_path / "saved"))
    assert [text for _, text in found.train(0.25)] == ["a", "", "c"]
    assert list(found.valid(0.25)) == ["b"]
    with pytest.raises(DataError, match="no column 'body'"):
        corpus.resolve(str(tmp_path / "saved"), "body")


def test_the_text_of_the_package_is_there() -> None:
    found = corpus.resolve(None)
    assert sum(len(text) for _, text in found.train(0.05)) > 300_000
    assert (corpus.TINY.parent / "NOTICE.md").exists()
