"""Tokens in one row, tokenizers, and the cache that keeps both."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_decentral.data import cache, corpus, load_text, packing
from hf_decentral.data import tokenizer as tokenizers
from hf_decentral.errors import DataError


class Bytes:
    """A tokenizer as simple as can be: bytes, and 256 for end-of-text."""

    eos_token_id = 256

    def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [list(text.encode()) for text in texts]}

    def __len__(self) -> int:
        return 257

    def get_vocab(self) -> dict[str, int]:
        return {str(k): k for k in range(257)}


def made_of(texts: list[str]) -> corpus.Corpus:
    return corpus.Corpus("made", f"made of {texts}", lambda skip: iter(texts[skip:]))


def documents_in(tokens: packing.Tokens) -> list[str]:
    """Cut a row of tokens at end-of-text; what stands after the last one too."""
    pieces: list[list[int]] = [[]]
    for token in tokens.tolist():
        if token == 256:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [bytes(piece).decode(errors="replace") for piece in pieces if piece]


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=20), max_size=60), fraction=st.floats(0.02, 0.5))
def test_every_document_is_packed_once_whole_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], fraction: float
) -> None:
    folder = str(tmp_path_factory.mktemp("cache"))
    texts = [text.encode(errors="ignore").decode() for text in texts]
    source = made_of(texts)
    if not any(texts):
        with pytest.raises(DataError, match="holds no text"):
            packing.pack(source, Bytes(), fraction, folder)
        return
    packed = packing.pack(source, Bytes(), fraction, folder)
    assert packed.train.dtype == np.uint16
    assert len(packed.train) > 0 and len(packed.valid) > 0
    total = sum(len(text.encode()) + 1 for text in texts if text)
    assert len(packed.train) + len(packed.valid) == total
    train = [text for _, text in source.train(fraction) if text]
    valid = [text for text in source.valid(fraction) if text]
    if train and valid:
        assert documents_in(packed.train) == train
        assert documents_in(packed.valid) == valid


def test_one_document_is_cut_for_validation(tmp_path: Path) -> None:
    packed = packing.pack(made_of(["x" * 999]), Bytes(), 0.1, str(tmp_path))
    assert (len(packed.train), len(packed.valid)) == (900, 100)


def test_two_bytes_as_long_as_they_are_enough() -> None:
    assert packing.token_type(65_536) == np.uint16
    assert packing.token_type(65_537) == np.uint32


def test_the_cache_is_used_and_a_torn_file_is_made_again(tmp_path: Path) -> None:
    reads = []

    def read(skip: int) -> Any:
        reads.append(skip)
        return iter([f"text {k}" for k in range(40)][skip:])

    source = corpus.Corpus("counted", "counted", read)
    first = np.array(packing.pack(source, Bytes(), 0.1, str(tmp_path)).train)
    seen = len(reads)
    packing.pack(source, Bytes(), 0.1, str(tmp_path))
    assert len(reads) == seen
    (file,) = tmp_path.glob("tokens/*/train.bin")
    file.write_bytes(file.read_bytes()[:-3])
    again = packing.pack(source, Bytes(), 0.1, str(tmp_path)).train
    assert len(reads) > seen
    np.testing.assert_array_equal(first, again)


def test_an_interrupted_build_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    def torn(skip: int) -> Any:
        yield from ["a"] * 2000
        raise DataError("the disk went away")

    with pytest.raises(DataError, match="went away"):
        packing.pack(corpus.Corpus("torn", "torn", torn), Bytes(), 0.1, str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_dir() and path.name != "tokens"] == []


def _build(folder: str, log: str) -> None:
    def build(aside: Path) -> None:
        with open(log, "a") as file:
            file.write("built\n")
        (aside / "done").write_text("yes")

    cache.once(Path(folder) / "thing", build, lambda there: (there / "done").exists())


def test_of_many_processes_one_builds(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_build, args=(str(tmp_path), str(tmp_path / "log"))) for _ in range(6)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert [other.exitcode for other in others] == [0] * 6
    assert (tmp_path / "log").read_text() == "built\n"


def test_an_unwritable_cache_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot be written(.|\n)*--cache_dir"):
        packing.pack(made_of(["a", "b"]), Bytes(), 0.5, str(tmp_path / "file"))


def test_a_trained_tokenizer_gives_the_text_back_and_is_the_same_each_time(tmp_path: Path) -> None:
    texts = [f"the cat number {k} sat on the mat, ☃" for k in range(200)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "a.jsonl").write_text(lines)
    made = [
        load_text(str(tmp_path / "a.jsonl"), "bpe:300", cache_dir=str(tmp_path / name)) for name in ("x", "y")
    ]
    assert len(made[0].tokenizer) <= 300
    assert made[0].tokenizer.decode(made[0].tokenizer(texts[7])["input_ids"]) == texts[7]
    assert made[0].packed is not None and made[1].packed is not None
    np.testing.assert_array_equal(made[0].packed.train, made[1].packed.train)
    end = made[0].tokenizer.eos_token_id
    assert (np.asarray(made[0].packed.train) == end).sum() + (
        np.asarray(made[0].packed.valid) == end
    ).sum() == 200


@pytest.mark.parametrize("name", ["bpe:", "bpe:12", "bpe:many", "bpe:70000"])
def test_sizes_that_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Expected bpe:SIZE"):
        tokenizers.load(name, made_of(["a"]), 0.1, str(tmp_path))


def test_a_tokenizer_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="cannot be loaded"):
        tokenizers.load(str(tmp_path / "nothing"), made_of(["a"]), 0.1)


def test_gpt2s_own_two_files_are_enough(tmp_path: Path) -> None:
    data = Path(__file__).parents[3] / "shared" / "data" / "gpt2-bpe"
    if not data.exists():
        pytest.skip("GPT-2's vocabulary is not beside this checkout")
    loaded = tokenizers.load(str(data), made_of(["a"]), 0.1)
    assert loaded("Hello world")["input_ids"] == [15496, 995]
    assert (len(loaded), loaded.eos_token_id) == (50257, 50256)
