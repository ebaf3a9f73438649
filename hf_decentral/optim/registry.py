"""The handles of this process, in the order in which they were made: the same on every worker."""

from __future__ import annotations

import weakref
from itertools import count
from typing import Any

_serial = count()
_alive: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def register(handle: Any) -> None:
    """Remember a :class:`~hf_decentral.optim.handle.Gossip` for as long as somebody holds it."""
    _alive[handle] = next(_serial)


def forget(handle: Any) -> None:
    """Another handle takes its place."""
    _alive.pop(handle, None)


def alive() -> list[Any]:
    """All handles, oldest first."""
    return sorted(_alive, key=_alive.__getitem__)
