"""WordNet for METEOR, found on this machine and never downloaded."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from hf_decentral.errors import metrics as errors

_PARTS = ("adj", "adv", "noun", "verb")
# The files that looking up synonyms reads.
_FILES = ("lexnames", *(f"{kind}.{part}" for kind in ("index", "data") for part in _PARTS)) + tuple(
    f"{part}.exc" for part in _PARTS
)


def find_wordnet(wordnet: str | Path | None = None) -> Path | None:
    """The folder or the ``.zip`` file that holds WordNet, or None: then METEOR cannot be computed here.

    Args:
        wordnet: where to look: a folder ``nltk_data``, its ``corpora``, the folder ``wordnet`` itself, or
            ``wordnet.zip``. The default is the folders in the environment variable ``NLTK_DATA``, then
            ``nltk.data.path``.

    Raises:
        SettingsError: nltk is not installed.
    """
    return _search(wordnet)[0]


def reader(wordnet: str | Path | None = None) -> Any:
    """nltk's reader of WordNet.

    Raises:
        SettingsError: nltk is not installed, or WordNet is not found or cannot be read.
    """
    found, looked = _search(wordnet)
    if found is None:
        raise errors.no_wordnet(looked)
    return _read(found)


def _search(wordnet: str | Path | None) -> tuple[Path | None, list[str]]:
    """What was found, and each place before it with what is wrong there."""
    looked: list[str] = []
    for place in dict.fromkeys(_places(wordnet)):
        noted = str(place)
        for candidate in (place, *_below(place)):
            if not os.path.exists(candidate):  # False also below a folder that may not be searched
                continue
            if _holds_wordnet(candidate):
                return candidate.resolve(), looked
            if candidate.name in ("wordnet", "wordnet.zip"):
                noted = f"{candidate} (damaged or incomplete)"
        looked.append(noted)
    return None, looked


def _places(wordnet: str | Path | None) -> Iterator[Path]:
    data = _nltk_data()
    if wordnet is not None:
        yield Path(wordnet).expanduser()
        return
    # nltk has read the variable once, when it was imported; a script may have set it since.
    for folder in [*os.environ.get("NLTK_DATA", "").split(os.pathsep), *map(str, data.path)]:
        if folder:
            yield Path(folder).expanduser()


def _below(place: Path) -> Iterator[Path]:
    """Where WordNet lies in ``nltk_data`` and in ``nltk_data/corpora``, unpacked or not."""
    for folder in (place / "corpora", place):
        yield folder / "wordnet"
        yield folder / "wordnet.zip"


def _holds_wordnet(candidate: Path) -> bool:
    try:
        if candidate.is_dir():
            return all((candidate / name).is_file() for name in _FILES)
        with zipfile.ZipFile(candidate) as archive:
            return {f"wordnet/{name}" for name in _FILES} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


@lru_cache(maxsize=1)  # reading takes a second, and what is read some 100 MB
def _read(found: Path) -> Any:
    data = _nltk_data()
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def map_wn(self, version: str = "wordnet") -> None:
            """Map nothing: only other languages need it, and it would look for a second WordNet."""

    # nltk reads below its search path only. What was named here may be read, and nothing beside it.
    if not any(found.is_relative_to(Path(str(folder)).expanduser().resolve()) for folder in data.path):
        data.path.append(str(found))
    try:
        root = (data.FileSystemPathPointer if found.is_dir() else _archive)(str(found))
        with warnings.catch_warnings():
            # Without the data of other languages nltk says so, and METEOR does not need them.
            warnings.filterwarnings("ignore", message="The multilingual functions are not available")
            return Reader(root, None)
    except Exception as error:  # nltk raises whatever its parts raise, an AssertionError too
        cause = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise errors.unreadable_wordnet(found, cause) from error


def _archive(path: str) -> Any:
    return _nltk_data().ZipFilePathPointer(path, "wordnet/")


def _nltk_data() -> Any:
    try:
        import nltk.data  # optional
    except ImportError as error:
        raise errors.missing_package("nltk", "METEOR") from error
    return nltk.data
