"""The command line as it is typed."""

from __future__ import annotations

import sys

import pytest

from hf_decentral.cli import main


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Types ``hf-decentral topology ...``: the exit code, what was printed, what was complained of."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hf-decentral", "topology", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run
