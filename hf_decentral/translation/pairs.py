"""Sentence pairs: from files, from a dataset, or the small set of the package, as two columns of text.

Rows are either ``{"translation": {"en": "…", "de": "…"}}`` or hold the two sentences in two named columns.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hf_decentral import data
from hf_decentral.data import local
from hf_decentral.errors import DecentralizedError, out_of_range
from hf_decentral.errors import translation as errors

logger = logging.getLogger(__name__)

TINY = Path(data.__file__).parent / "tiny"
SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
# The names that a dataset may have for its splits, and ours.
SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "dev": "validation"}
SPLITS |= {"val": "validation", "test": "test"}
# Part of every name in the cache: raise it when the same file would give other rows.
FORM = 1

_LINE_ENDS = re.compile(r"[\t-\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def clean(text: str) -> str:
    """One line of plain text: what a predictions file with one sentence a line can hold.

    Tabs and line ends of every kind become a space, other control characters (zero included) and byte order
    marks go, halves of characters become U+FFFD, and space at both ends is stripped. All else is kept.
    """
    text = _CONTROLS.sub("", _LINE_ENDS.sub(" ", text))
    return _SURROGATES.sub("\ufffd", text).strip()


@dataclass(frozen=True)
class Sides:
    """Where a row holds its two sentences.

    Attributes:
        source_lang: language translated from; its code without the region is tried too (``en_XX``: ``en``).
        target_lang: language translated to.
        source_column: column of the source, or None: the column ``translation``, or one named by language.
        target_column: column of the target.
    """

    source_lang: str
    target_lang: str
    source_column: str | None = None
    target_column: str | None = None

    def __post_init__(self) -> None:
        if (self.source_column is None) != (self.target_column is None):
            raise errors.one_column(self.source_column or self.target_column or "")

    def texts(self, row: Mapping[str, Any], place: str) -> tuple[str, str]:
        """The two sentences of a row, cleaned; null is a blank one. ``place`` names the row in errors.

        Raises:
            DataError: no such column or language, or something else than text.
        """
        names = (self.source_column or self.source_lang, self.target_column or self.target_lang)
        by_language = self.source_column is None and isinstance(row.get("translation"), Mapping)
        held = row["translation"] if by_language else row
        lacking = errors.missing_language if by_language else errors.missing_column
        found = []
        for name in names:
            key = next((key for key in (name, re.split("[_-]", name)[0]) if key in held), None)
            if key is None:
                raise lacking(place, name, sorted(held))
            value = held[key]
            if value is not None and not isinstance(value, str):
                raise errors.not_text(place, key, f"{type(value).__name__} values")
            found.append(clean(value or ""))
        return found[0], found[1]


def load_pairs(
    source_lang: str,
    target_lang: str,
    *,
    train: str | Path | None = None,
    validation: str | Path | None = None,
    test: str | Path | None = None,
    dataset_name: str | None = None,
    dataset_config: str | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    limit: int | None = None,
) -> Any:
    """Load sentence pairs; with neither files nor a dataset, the small set of the package.

    Training rows with a blank side are left out, and their number is logged; the other splits keep all, as an
    empty reference is scored too. Equal sides are kept. Text is cleaned (`clean`); a file with zero bytes in
    it is refused. What was read is kept in the cache of `datasets`.

    Args:
        source_lang, target_lang: languages to translate from and to, for example ``en`` and ``de``.
        train, validation, test: files of JSON lines, also ``.gz``; a split without one is not in the result.
        dataset_name: a dataset of the hub (``wmt14``), or a folder that `datasets` reads.
        dataset_config: its configuration (``de-en``).
        source_column, target_column: columns with the two sides, where they are not in ``translation``.
        limit: read at most so many rows of each split, the first ones.

    Returns:
        A `datasets.DatasetDict` of ``train``, ``validation`` and ``test``, as far as they are there, each
        with the columns ``source`` and ``target``.

    Raises:
        DataError: missing, unreadable, empty, a corrupt line, no such column or language.
        SettingsError: arguments that do not go together.
    """
    import datasets  # heavy

    if limit is not None and limit < 1:
        raise out_of_range("limit", limit, "a number of rows, from 1 on", "leave it out to read all")
    sides = Sides(source_lang, target_lang, source_column, target_column)
    given = _given(dataset_name, train=train, validation=validation, test=test)
    if dataset_name is not None:
        found = _dataset(dataset_name, dataset_config, sides, limit)
    else:
        found = {split: _file(path, sides, limit) for split, path in given.items()} or _tiny(sides, limit)
    if "train" in found:
        found["train"] = _without_blanks(found["train"], str(given.get("train", dataset_name)))
    return datasets.DatasetDict(found)


def _given(dataset: str | None, **files: str | Path | None) -> dict[str, Path]:
    """The files that were given, by split."""
    given = {split: Path(path).expanduser() for split, path in files.items() if path is not None}
    if given and dataset is not None:
        raise errors.two_places(dataset)
    return given


def _file(path: Path, sides: Sides, limit: int | None) -> Any:
    import datasets

    if not path.is_file():
        raise errors.missing_file(path)
    if not path.name.endswith(SUFFIXES):
        raise errors.unknown_suffix(path)
    status = path.stat()
    mark = f"{FORM} {status.st_size} {status.st_mtime_ns}"
    text = datasets.Value("string")
    try:
        return datasets.Dataset.from_generator(
            _read,
            features=datasets.Features({"source": text, "target": text}),
            gen_kwargs={"path": str(path.resolve()), "limit": limit, "mark": mark, **asdict(sides)},
        )
    except Exception as error:
        # `datasets` wraps what the generator raised; the sentence inside is the one to read.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, DecentralizedError):
            cause = cause.__cause__
        raise (cause or error) from None


def _read(path: str, limit: int | None, mark: str, **sides: str | None) -> Iterator[dict[str, str]]:
    """The rows of a file; ``mark`` only tells a changed file from the one that was cached."""
    columns = Sides(**sides)  # type: ignore[arg-type]
    rows = 0
    for line, record in local.records(Path(path)):
        source, target = columns.texts(record, f"line {line} of {path!r}")
        yield {"source": source, "target": target}
        rows += 1
        if rows == limit:
            break
    if rows == 0:
        raise errors.no_pairs(path)


def _dataset(name: str, config: str | None, sides: Sides, limit: int | None) -> dict[str, Any]:
    import datasets

    called = name if config is None else f"{name}:{config}"
    folder = Path(name).expanduser()
    try:
        if (folder / "dataset_dict.json").exists() or (folder / "dataset_info.json").exists():
            splits = datasets.load_from_disk(str(folder))
        else:
            splits = datasets.load_dataset(name, config)
    except Exception as error:  # `datasets` raises whatever its parts raise; all of it means this
        cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        raise errors.not_loadable(called, cause) from error
    if not isinstance(splits, dict):
        splits = {"train": splits}
    found = {}
    for split, rows in splits.items():
        if split in SPLITS and SPLITS[split] not in found:
            if len(rows) == 0:
                raise errors.no_pairs(f"{called}, {split}")
            rows = rows.select(range(min(limit or len(rows), len(rows))))
            columns = {"place": f"{called}, {split}", **asdict(sides)}
            found[SPLITS[split]] = rows.map(
                _side_columns, batched=True, fn_kwargs=columns, remove_columns=rows.column_names
            )
    if not found:
        raise errors.no_pairs(called)
    return found


def _side_columns(batch: dict[str, list[Any]], place: str, **sides: str | None) -> dict[str, list[str]]:
    columns = Sides(**sides)  # type: ignore[arg-type]
    rows = (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))
    pairs = [columns.texts(row, f"a row of {place!r}") for row in rows]
    return {"source": [source for source, _ in pairs], "target": [target for _, target in pairs]}


def _without_blanks(rows: Any, name: str) -> Any:
    kept = rows.map(_both_sides, batched=True)
    if len(kept) == 0:
        raise errors.only_blank(name, len(rows))
    if len(kept) < len(rows):
        logger.warning(
            "%s: %d of %d training pairs are blank on one side and are left out",
            name,
            len(rows) - len(kept),
            len(rows),
        )
    return kept


def _both_sides(batch: dict[str, list[str]]) -> dict[str, list[str]]:
    kept = [pair for pair in zip(batch["source"], batch["target"], strict=True) if all(pair)]
    return {"source": [source for source, _ in kept], "target": [target for _, target in kept]}


def _tiny(sides: Sides, limit: int | None) -> dict[str, Any]:
    """The pairs of the package: 8 of 10 to train on, 1 to validate on, 1 to test with.

    A hash of the English side chooses, so that both directions, and German and French, split alike.
    """
    shipped = {path.name.removesuffix(".permissive.jsonl"): path for path in TINY.glob("*.permissive.jsonl")}
    wanted = {re.split("[_-]", name)[0] for name in (sides.source_lang, sides.target_lang)}
    path = next((path for pair, path in shipped.items() if set(pair.split("-")) == wanted), None)
    if path is None:
        raise errors.no_such_pair(sides.source_lang, sides.target_lang, sorted(shipped))
    rows = _file(path, Sides(sides.source_lang, sides.target_lang), None)
    english = "source" if sides.source_lang.startswith("en") else "target"
    parts: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for number, text in enumerate(rows[english]):
        tenth = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10
        parts["validation" if tenth == 8 else "test" if tenth == 9 else "train"].append(number)
    return {split: rows.select(numbers[:limit]) for split, numbers in parts.items()}
