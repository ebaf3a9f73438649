"""How a program ends: with a sentence where the error is ours, and with a traceback where it is not."""

from __future__ import annotations

import pytest

from hf_decentral.errors import SettingsError
from hf_decentral.errors.ending import no_traceback


def test_an_error_of_ours_ends_the_process_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(SystemExit) as ended, no_traceback():
        raise SettingsError("No.")
    assert ended.value.code == "SettingsError (worker 3): No."


def test_an_interrupt_and_every_other_end() -> None:
    with pytest.raises(SystemExit) as ended, no_traceback():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    with pytest.raises(ValueError, match="not ours"), no_traceback():
        raise ValueError("not ours")
    with pytest.raises(SystemExit) as ended, no_traceback():
        raise SystemExit(3)
    assert ended.value.code == 3
