"""Documents out of local files: plain text, JSON lines and parquet, compressed or not."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from hf_decentral.errors import data as errors

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")

# A plain text file says nothing of where its documents end. It is cut at the first blank line after this
# many characters, so that some of it can be held out for validation.
DOCUMENT_CHARACTERS = 8_000
# A line longer than this is cut too: a file without any line end must not be read into memory whole.
LINE_CHARACTERS = 1_000_000


def files(path: Path) -> list[Path]:
    """The files to read, sorted: ``path`` itself, or all of a known form below the folder ``path``."""
    if path.is_file():
        if not path.name.endswith(SUFFIXES):
            raise errors.unknown_suffix(path, SUFFIXES)
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(SUFFIXES))
    if not found:
        raise errors.no_files(path, SUFFIXES)
    return found


def documents(path: Path, column: str) -> Iterator[str]:
    """Read the documents of one file, in order; none of them is blank.

    Args:
        path: a file with one of the `SUFFIXES`.
        column: the key of the text in JSON lines and parquet.

    Raises:
        DataError: unreadable, empty, binary, not UTF-8, no JSON, no such column.
    """
    if path.suffix == ".parquet":
        pieces = _parquet(path, column)
    elif path.name.removesuffix(".gz").endswith(".jsonl"):
        pieces = _json_lines(path, column)
    else:
        pieces = _text(path)
    some = False
    try:
        for piece in pieces:
            if piece.strip():
                some = True
                yield piece
    except (OSError, EOFError, zlib.error) as error:
        raise errors.unreadable(path, str(error)) from error
    if not some:
        raise errors.empty(str(path))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, line ends kept."""
    with _open(path) as file:
        number = 0
        pending = b""
        while raw := file.readline(LINE_CHARACTERS):
            if b"\0" in raw:
                raise errors.binary(path)
            number += 1
            raw, pending = _whole_characters(pending + raw)
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise errors.not_utf8(path, number) from error
            yield number, text
        if pending:
            raise errors.not_utf8(path, number)


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _whole_characters(raw: bytes) -> tuple[bytes, bytes]:
    """Cut off a character whose last bytes are not there yet (a long line is read in pieces)."""
    for length in range(1, min(3, len(raw)) + 1):
        lead = raw[-length]
        if lead >= 0xC0:  # begins a character of 2, 3 or 4 bytes
            size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return (raw[:-length], raw[-length:]) if size > length else (raw, b"")
        if lead < 0x80:
            break
    return raw, b""


def _text(path: Path) -> Iterator[str]:
    piece: list[str] = []
    length = 0
    for _, line in _lines(path):
        piece.append(line)
        length += len(line)
        if length >= DOCUMENT_CHARACTERS and (not line.strip() or length >= 8 * DOCUMENT_CHARACTERS):
            yield "".join(piece).strip("\n")
            piece, length = [], 0
    yield "".join(piece).strip("\n")


def records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number (from 1) and object of each line that is not blank, in a file of JSON lines, or ``.gz``.

    A byte order mark at the start of a line is dropped, and control characters inside strings are let pass.

    Raises:
        DataError: unreadable, binary, not UTF-8, or a line that is no JSON object.
    """
    try:
        # A record may be longer than a piece of a line, so pieces are joined up to the line end.
        joined: list[str] = []
        line = 0
        for _, piece in _lines(path):
            joined.append(piece)
            if piece.endswith("\n"):
                line += 1
                yield from _record(path, line, "".join(joined))
                joined = []
        if joined:
            yield from _record(path, line + 1, "".join(joined))
    except (OSError, EOFError, zlib.error) as error:
        raise errors.unreadable(path, str(error)) from error


def _record(path: Path, line: int, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    text = text.lstrip("\ufeff")
    if not text.strip():
        return
    try:
        record = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise errors.not_json(path, line, getattr(error, "msg", str(error))) from error
    if not isinstance(record, dict):
        raise errors.not_json(path, line, f"it is a {type(record).__name__}")
    yield line, record


def _json_lines(path: Path, column: str) -> Iterator[str]:
    for line, record in records(path):
        if column not in record:
            raise errors.missing_column(str(path), column, sorted(record))
        value = record[column]
        if not isinstance(value, str):
            raise errors.not_text(str(path), column, f"{type(value).__name__} values (line {line})")
        yield value


def _parquet(path: Path, column: str) -> Iterator[str]:
    import pyarrow.lib  # type: ignore[import-untyped]  # heavy, and only needed here
    import pyarrow.parquet  # type: ignore[import-untyped]

    try:
        file = pyarrow.parquet.ParquetFile(path)
        if column not in file.schema_arrow.names:
            raise errors.missing_column(str(path), column, file.schema_arrow.names)
        kind = str(file.schema_arrow.field(column).type)
        if kind not in ("string", "large_string"):
            raise errors.not_text(str(path), column, f"{kind} values")
        for batch in file.iter_batches(batch_size=1_000, columns=[column]):
            for value in batch.column(0).to_pylist():
                yield value or ""
    except pyarrow.lib.ArrowException as error:
        raise errors.unreadable(path, str(error)) from error
