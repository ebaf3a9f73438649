"""Caches of these tests alone, and real sentence pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest

from hf_decentral.translation import load_pairs, load_vocabulary

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(autouse=True, scope="session")
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("hf_home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(home))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
        yield


@pytest.fixture(scope="session")
def real() -> dict[str, Path]:
    """Files of English-German pairs, by split."""
    if not (SHARED / "en-de").exists():
        pytest.skip("../shared/data is absent")
    names = {"train": "train", "validation": "valid", "test": "test"}
    return {split: SHARED / "en-de" / f"{name}.jsonl.gz" for split, name in names.items()}


@pytest.fixture(scope="session")
def tiny(own_caches: None) -> Any:
    """The pairs of the package, English to German."""
    return load_pairs("en", "de")


@pytest.fixture(scope="session")
def vocabulary(tiny: Any) -> Any:
    return load_vocabulary(tiny["train"])
