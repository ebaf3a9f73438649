"""A WordNet with one synset, {car, auto}, for tests that must run without the real one."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

FILES = {
    "lexnames": "00\tnoun.artifact\t1\n",
    "index.sense": "auto%1:00:00:: 00000000 1 0\ncar%1:00:00:: 00000000 1 0\n",
    "index.noun": "auto n 1 0 1 0 00000000\ncar n 1 0 1 0 00000000\n",
    "data.noun": "00000000 00 n 02 car 0 auto 0 000 | a thing on wheels\n",
    **{f"{kind}.{part}": "" for kind in ("index", "data") for part in ("adj", "adv", "verb")},
    **{f"{part}.exc": "" for part in ("adj", "adv", "noun", "verb")},
}

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "nltk_data"


def real() -> Path:
    """The folder ``nltk_data`` with the whole WordNet."""
    if not REAL.is_dir():
        pytest.skip("../shared/data is absent")
    return REAL


def unpacked(nltk_data: Path) -> Path:
    """Write it as a folder, and return that."""
    folder = nltk_data / "corpora" / "wordnet"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_text(content)
    return folder


def packed(nltk_data: Path) -> Path:
    """Write it as a zip file, and return that."""
    (nltk_data / "corpora").mkdir(parents=True)
    path = nltk_data / "corpora" / "wordnet.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"wordnet/{name}", content)
    return path
