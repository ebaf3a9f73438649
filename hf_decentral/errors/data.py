"""Errors about datasets, tokenizers and the contexts cut from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hf_decentral.errors.base import DataError, sentence

FORMS = "a .txt, .jsonl or .parquet file (also .gz), a folder of them, or the name of a dataset on the hub"


def missing(dataset: str) -> DataError:
    """A path to nothing."""
    return DataError(
        sentence(f"there is no file or folder {dataset!r}", f"--dataset is {FORMS}", "check the path")
    )


def no_files(folder: Path, suffixes: Sequence[str]) -> DataError:
    """A folder without a single file that could be read."""
    return DataError(
        sentence(
            f"folder {str(folder)!r} holds no text",
            f"expected files that end in {', '.join(suffixes)}",
            "give the folder that holds them, or one file",
        )
    )


def unknown_suffix(path: Path, suffixes: Sequence[str]) -> DataError:
    """A file of a form that is not read."""
    return DataError(
        sentence(
            f"{str(path)!r} has no known ending",
            f"expected one of {', '.join(suffixes)}",
            "rename or convert the file; plain text is .txt",
        )
    )


def unreadable(path: Path, cause: str) -> DataError:
    """A file that the system refuses to open, or that breaks in the middle."""
    return DataError(
        sentence(f"{str(path)!r} cannot be read ({cause})", "expected a whole, readable file", "restore it")
    )


def empty(name: str) -> DataError:
    """A file or dataset without any text."""
    return DataError(
        sentence(f"{name!r} holds no text", "expected at least one document", "give another dataset")
    )


def binary(path: Path) -> DataError:
    """A file with zero bytes in it: no text."""
    return DataError(
        sentence(
            f"{str(path)!r} looks binary (it holds zero bytes)",
            "expected UTF-8 text",
            "give a text file; UTF-16 text can be converted with `iconv -f UTF-16 -t UTF-8`",
        )
    )


def not_utf8(path: Path, line: int) -> DataError:
    """Bytes that are no UTF-8."""
    return DataError(
        sentence(
            f"{str(path)!r} is not UTF-8 (first seen at line {line})",
            "expected UTF-8 text",
            "convert it, for example `iconv -f LATIN1 -t UTF-8`",
        )
    )


def not_json(path: Path, line: int, cause: str) -> DataError:
    """A line of a .jsonl file that is no JSON object."""
    return DataError(
        sentence(
            f"line {line} of {str(path)!r} is no JSON object ({cause})",
            "expected one JSON object on each line",
            "mend or remove the line; a file of plain text is named .txt",
        )
    )


def missing_column(name: str, column: str, columns: Sequence[str]) -> DataError:
    """A dataset whose text has another name."""
    return DataError(
        sentence(
            f"{name!r} has no column {column!r}",
            f"its columns are {', '.join(map(repr, columns)) or 'none'}",
            "name the one that holds the text with --text_column",
        )
    )


def not_text(name: str, column: str, kind: str) -> DataError:
    """A column that holds something else than strings."""
    return DataError(
        sentence(
            f"column {column!r} of {name!r} holds {kind}",
            "expected strings",
            "name the column that holds the text with --text_column",
        )
    )


def not_loadable(name: str, cause: str) -> DataError:
    """A hub dataset that `datasets` could not load."""
    return DataError(
        sentence(
            f"dataset {name!r} cannot be loaded ({cause})",
            f"--dataset is {FORMS}",
            "check the name (NAME or NAME:CONFIG) and the network; "
            "a dataset that was downloaded before loads with HF_HUB_OFFLINE=1",
        )
    )


def too_small(part: str, contexts: int, needed: int, block_size: int, workers: int) -> DataError:
    """Fewer full contexts than one step of all workers takes."""
    return DataError(
        sentence(
            f"the {part} text makes {contexts} contexts of {block_size} tokens",
            f"one step of {workers} worker{'s' if workers > 1 else ''} takes {needed}",
            "give more text, or lower --batch_size, --block_size or the number of workers",
        )
    )


def no_tokenizer(name: str, cause: str) -> DataError:
    """A tokenizer that could not be loaded."""
    return DataError(
        sentence(
            f"tokenizer {name!r} cannot be loaded ({cause})",
            "--tokenizer is a name on the hub, a folder with tokenizer files (or vocab.json and merges.txt), "
            "or bpe:SIZE to train one on the text",
            "check the name; without a network use bpe:2048 or a local folder",
        )
    )


def tokenizer_size(given: str, smallest: int, largest: int) -> DataError:
    """A size that a byte-level BPE cannot have."""
    return DataError(
        sentence(
            f"--tokenizer is {given!r}",
            f"expected bpe:SIZE with a whole number from {smallest} (256 bytes and end-of-text) to {largest}",
            "a small text needs no more than bpe:2048",
        )
    )


def no_end_of_text(name: str) -> DataError:
    """A tokenizer that has no token to put between documents."""
    return DataError(
        sentence(
            f"tokenizer {name!r} has no end-of-text token",
            "expected an eos_token, which stands between documents",
            "set eos_token in its tokenizer_config.json, or use another tokenizer",
        )
    )


def cache_unwritable(path: Path, cause: str) -> DataError:
    """A cache folder that cannot be written."""
    return DataError(
        sentence(
            f"the cache {str(path)!r} cannot be written ({cause})",
            "expected a writable folder with room for 2 to 4 bytes per token",
            "give another one with --cache_dir, or set HF_HOME",
        )
    )
