"""The handles of this process, in the order in which they were made: the same on every worker."""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hf_decentral.optim.handle import Gossip

_serial = count()
_alive: weakref.WeakKeyDictionary[Gossip, int] = weakref.WeakKeyDictionary()


def register(handle: Gossip) -> None:
    """Remember a handle for as long as somebody holds it."""
    _alive[handle] = next(_serial)


def forget(handle: Gossip) -> None:
    """Another handle takes its place."""
    _alive.pop(handle, None)


def alive() -> list[Gossip]:
    """All handles, oldest first."""
    return sorted(_alive, key=_alive.__getitem__)
