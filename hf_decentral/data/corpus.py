"""From what a user calls a dataset to its documents, split into training and validation.

--dataset nothing      the small text that ships with the package (not under copyright)
--dataset my/file.txt  a local file: .txt, .jsonl, .parquet, also .gz
--dataset my/folder    all such files below it; files named valid (or val, dev; else test) are held out
--dataset NAME:CONFIG  a dataset of the hub, through `datasets`, downloaded whole or streamed
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hf_decentral.data import hub, local
from hf_decentral.errors import data as errors
from hf_decentral.errors import out_of_range

TINY = Path(__file__).parent / "tiny" / "text.txt"
# valid.jsonl, test.txt.gz, validation-00000-of-00002.parquet; but not test-drive.txt
HELD_OUT = re.compile(r"(valid|validation|val|dev|test)(?:[-_]?\d[^.]*)?\.")
ALIASES = {"openwebtext": "Skylion007/openwebtext"}


@dataclass(frozen=True)
class Corpus:
    """A dataset that can be read again and again, always in the same order.

    Attributes:
        name: what the user called it.
        fingerprint: differs when the text differs; part of the names in the cache.
        documents: begins to read the training documents, the given number of them skipped.
        held_out: begins to read the validation documents, or None where the dataset has none of its own.
    """

    name: str
    fingerprint: str
    documents: Callable[[int], Iterator[str]]
    held_out: Callable[[], Iterator[str]] | None = None

    def train(self, fraction: float, skip: int = 0) -> Iterator[tuple[int, str]]:
        """Number and text of the training documents, from document number ``skip`` on."""
        period = self._period(fraction)
        for number, text in enumerate(self.documents(skip), start=skip):
            if period == 0 or number % period != period // 2:
                yield number, text

    def valid(self, fraction: float) -> Iterator[str]:
        """The validation documents: the dataset's own, or one in every ``1 / fraction`` documents.

        Chosen by position and not by seed, so that runs with different seeds are measured on the same text.
        """
        if self.held_out is not None:
            yield from self.held_out()
            return
        period = self._period(fraction)
        for number, text in enumerate(self.documents(0)):
            if number % period == period // 2:
                yield text

    def _period(self, fraction: float) -> int:
        return 0 if self.held_out is not None else max(2, round(1 / fraction))


def check_fraction(fraction: float) -> None:
    """Refuse a share of validation documents that leaves nothing for one of the two.

    Raises:
        SettingsError: outside 0 … 0.5.
    """
    if not 0.0 < fraction <= 0.5:
        raise out_of_range("--validation_fraction", fraction, "more than 0 and at most 0.5", "0.05 is usual")


def resolve(dataset: str | None, text_column: str = "text", *, streaming: bool = False) -> Corpus:
    """Find the dataset that a user named.

    Args:
        dataset: see the top of this module; None is the text that ships with the package.
        text_column: the column, or JSON key, that holds the text.
        streaming: read a hub dataset over the network instead of downloading it first.

    Raises:
        DataError: it is missing, unreadable, or has no such column.
    """
    if dataset is None or dataset == "tiny":
        return _local("tiny", TINY, text_column)
    path = Path(dataset).expanduser()
    if path.exists():
        if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
            return Corpus(dataset, *hub.saved(path, text_column))
        return _local(dataset, path, text_column)
    if dataset.startswith(("/", "./", "../", "~")) or dataset.endswith((*local.SUFFIXES, ".gz", os.sep)):
        raise errors.missing(dataset)
    if dataset.count("/") > 1 or not dataset:
        raise errors.missing(dataset)
    name, _, config = dataset.partition(":")
    return Corpus(
        dataset, *hub.loaded(ALIASES.get(name, name), config or None, text_column, streaming=streaming)
    )


def _local(name: str, path: Path, column: str) -> Corpus:
    try:
        found = local.files(path)
        marks = [(str(file.relative_to(path)), *_mark(file)) for file in found]
    except OSError as error:
        raise errors.unreadable(path, str(error)) from error
    kept, held = _split(found)

    def read(paths: list[Path], skip: int = 0) -> Iterator[str]:
        for file in paths:
            for text in local.documents(file, column):
                if skip:
                    skip -= 1
                else:
                    yield text

    return Corpus(
        name,
        f"{path.resolve()} {column} {marks}",
        lambda skip: read(kept, skip),
        (lambda: read(held)) if held else None,
    )


def _mark(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _split(found: list[Path]) -> tuple[list[Path], list[Path]]:
    """Files to train on and files to validate on, by their names; test files are never trained on."""
    valid: list[Path] = []
    test: list[Path] = []
    kept: list[Path] = []
    for file in found:
        named = HELD_OUT.match(file.name)
        (kept if named is None else test if named[1] == "test" else valid).append(file)
    if not kept:  # a lone valid.jsonl is a dataset like any other
        return found, []
    return kept, valid or test
