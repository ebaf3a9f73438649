"""Errors about names and numbers that a user typed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from hf_decentral.errors.base import SettingsError, sentence

# Nobody reads a table of so many names on a terminal; so many of the nearest ones are read.
_MANY, _NEAR = 20, 5


def unknown_name(kind: str, given: object, known: Iterable[str]) -> SettingsError:
    """A name that is in no table; the nearest known one is offered, and of a long table only the near ones.

    Args:
        kind: what the name should have named, for example ``"topology"``.
        given: what was typed.
        known: the names that exist.
    """
    names = sorted(known)
    folded = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(given).lower(), folded, n=_NEAR, cutoff=0.5)
    shown = ", ".join(names)
    if near and len(names) > _MANY:
        shown = f"{len(names)} names, among them {', '.join(folded[name] for name in near)}"
    advice = f"did you mean {folded[near[0]]!r}?" if near else "choose one of them"
    return SettingsError(
        sentence(f"unknown {kind} {given!r}", f"known are {shown}", advice).replace("?.", "?")
    )


def out_of_range(name: str, given: object, expected: str, advice: str) -> SettingsError:
    """A number that no run can use; ``expected`` says which it could be."""
    return SettingsError(sentence(f"{name}={given!r} was given", f"expected {expected}", advice))
