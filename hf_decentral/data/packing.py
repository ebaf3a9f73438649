"""Documents to one long row of tokens with end-of-text between them, kept as two flat files in the cache."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_decentral.data import cache
from hf_decentral.data.corpus import Corpus
from hf_decentral.errors import data as errors

Tokens = npt.NDArray[np.unsignedinteger[Any]]

# Documents given to the tokenizer at once; it works on them with several threads.
CHUNK = 512


@dataclass(frozen=True)
class Packed:
    """The tokens of a dataset, each array flat and mapped from disk, not read into memory.

    Attributes:
        train: ``[T]`` tokens of the training documents, an end-of-text after each.
        valid: ``[V]`` tokens of the validation documents, likewise.
    """

    train: Tokens
    valid: Tokens


def token_type(vocabulary: int) -> np.dtype[Any]:
    """The smallest unsigned type that numbers ``vocabulary`` tokens: two bytes where they are enough."""
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)


def tokenize(texts: Iterable[str], tokenizer: Any) -> Iterator[list[int]]:
    """The tokens of each document, ended by end-of-text."""
    texts = iter(texts)
    while chunk := list(itertools.islice(texts, CHUNK)):
        for tokens in tokenizer(chunk, add_special_tokens=False, return_attention_mask=False)["input_ids"]:
            yield [*tokens, tokenizer.eos_token_id]


def pack(corpus: Corpus, tokenizer: Any, fraction: float, cache_dir: str | None = None) -> Packed:
    """Tokenize a dataset once, and map the result.

    Args:
        corpus: the documents.
        tokenizer: a tokenizer of transformers with an end-of-text token.
        fraction: share of the documents that is held out where the dataset has no validation split.
        cache_dir: where to keep the token files.

    Raises:
        DataError: the dataset holds no text, or the cache cannot be written.
    """
    key = cache.key(form=1, text=corpus.fingerprint, tokenizer=tokenizer_mark(tokenizer), fraction=fraction)
    folder = cache.once(
        cache.root(cache_dir) / "tokens" / key,
        lambda aside: _write(corpus, tokenizer, fraction, aside),
        _complete,
    )
    about = json.loads((folder / "about.json").read_text())
    kind = np.dtype(about["type"])
    return Packed(
        np.memmap(folder / "train.bin", dtype=kind, mode="r"),
        np.memmap(folder / "valid.bin", dtype=kind, mode="r"),
    )


def tokenizer_mark(tokenizer: Any) -> str:
    """Differs whenever two tokenizers could cut a text differently."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return f"{type(tokenizer).__name__} {sorted(tokenizer.get_vocab().items())}"
    return f"{tokenizer.eos_token_id} {backend.to_str()}"


def _write(corpus: Corpus, tokenizer: Any, fraction: float, folder: Path) -> None:
    kind = token_type(len(tokenizer))
    train = _write_tokens(folder / "train.bin", (text for _, text in corpus.train(fraction)), tokenizer, kind)
    valid = _write_tokens(folder / "valid.bin", corpus.valid(fraction), tokenizer, kind)
    if train + valid == 0:
        raise errors.empty(corpus.name)
    if train == 0 or valid == 0:  # one document, or so few that the other part got none: cut what there is
        train, valid = _cut(folder, kind, fraction)
    about = {"dataset": corpus.name, "type": kind.name, "train_tokens": train, "valid_tokens": valid}
    (folder / "about.json").write_text(json.dumps(about))


def _write_tokens(path: Path, texts: Iterable[str], tokenizer: Any, kind: np.dtype[Any]) -> int:
    count = 0
    with path.open("wb") as file:
        for tokens in tokenize((text for text in texts if text), tokenizer):
            file.write(np.asarray(tokens, dtype=kind).tobytes())
            count += len(tokens)
    return count


def _cut(folder: Path, kind: np.dtype[Any], fraction: float) -> tuple[int, int]:
    """Cut all tokens there are into a training part and, at the end, a validation part; none is empty."""
    tokens = np.concatenate([np.fromfile(folder / name, dtype=kind) for name in ("train.bin", "valid.bin")])
    valid = max(1, round(len(tokens) * fraction))
    tokens[:-valid].tofile(folder / "train.bin")
    tokens[-valid:].tofile(folder / "valid.bin")
    return len(tokens) - valid, valid


def _complete(folder: Path) -> bool:
    """Whether the two files have the lengths that were written down last."""
    try:
        about = json.loads((folder / "about.json").read_text())
        size = np.dtype(about["type"]).itemsize
        return all(
            (folder / f"{part}.bin").stat().st_size == about[f"{part}_tokens"] * size > 0
            for part in ("train", "valid")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
