"""Documents out of the hub, or out of a folder that `datasets` saved, through `datasets`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hf_decentral.errors import data as errors

Documents = Callable[[int], Iterator[str]]
Found = tuple[str, Documents, Callable[[], Iterator[str]] | None]


def loaded(name: str, config: str | None, column: str, *, streaming: bool) -> Found:
    """Fingerprint, training documents and validation documents of a hub dataset.

    Raises:
        DataError: it cannot be loaded, or has no such column.
    """
    import datasets  # heavy, and not needed for local text

    try:
        splits = datasets.load_dataset(name, config, streaming=streaming)
    except Exception as error:  # `datasets` raises whatever its parts raise; all of it means this
        cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        raise errors.not_loadable(name if config is None else f"{name}:{config}", cause) from error
    return _found(f"{name} {config}", splits, column)


def saved(path: Path, column: str) -> Found:
    """The same of a folder that ``save_to_disk`` wrote."""
    import datasets

    try:
        splits: Any = datasets.load_from_disk(str(path))
    except Exception as error:
        raise errors.not_loadable(str(path), f"{type(error).__name__}: {error}") from error
    return _found(str(path), splits, column)


def _found(name: str, splits: Any, column: str) -> Found:
    if not isinstance(splits, dict):
        splits = {"train": splits}
    train_name = "train" if "train" in splits else next(iter(splits))
    train = splits[train_name]
    held = next((splits[split] for split in ("validation", "valid", "dev", "test") if split in splits), None)
    if held is train:
        held = None
    _check_column(name, train, column)
    mark = getattr(train, "_fingerprint", "") + getattr(held, "_fingerprint", "")

    def documents(skip: int) -> Iterator[str]:
        yield from _texts(train.skip(skip) if skip else train, column)

    def held_out() -> Iterator[str]:
        yield from _texts(held, column)

    return f"{name} {train_name} {column} {mark}", documents, held_out if held is not None else None


def _check_column(name: str, dataset: Any, column: str) -> None:
    columns = dataset.column_names
    if columns is None:  # a stream whose columns are only known once it is read
        columns = list(next(iter(dataset), {}))
    if column not in columns:
        raise errors.missing_column(name, column, columns)


def _texts(dataset: Any, column: str) -> Iterator[str]:
    # Blank documents are kept here: numbers of documents must equal numbers of rows, for `skip`.
    for row in dataset.select_columns([column]):
        yield row[column] or ""
