"""What is sent to the neighbours and how it is combined: one method a file, one row in the table."""

from __future__ import annotations

from hf_decentral.averaging.base import Averaging, Exchange, State
from hf_decentral.averaging.plain import plain
from hf_decentral.errors import unknown_name

TABLE: dict[str, Averaging] = {
    "plain": plain,
}

__all__ = ["TABLE", "Averaging", "Exchange", "State", "build", "names", "plain"]


def names() -> list[str]:
    """The names of all averaging methods."""
    return sorted(TABLE)


def build(name: str) -> Averaging:
    """The method of that name.

    Raises:
        SettingsError: no method has that name.
    """
    if name not in TABLE:
        raise unknown_name("averaging", name, TABLE)
    return TABLE[name]
