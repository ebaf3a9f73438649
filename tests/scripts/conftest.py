"""One cache for all launches of a test session: the small text is tokenized once."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory):
    patch = pytest.MonkeyPatch()
    patch.setenv("HF_HOME", str(tmp_path_factory.getbasetemp() / "hf_home"))
    yield
    patch.undo()
