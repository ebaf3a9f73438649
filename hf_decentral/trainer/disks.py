"""Hosts that share no disk: each writes the weights, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def where_told(model: Any) -> Iterator[None]:
    """``model.save_pretrained(is_main_process=True)`` writes on the worker that says so.

    That of transformers writes on worker 0 only, so that with ``save_on_each_node`` the disks of the other
    hosts would get a checkpoint without weights.

    Args:
        model: of transformers; others are left as they are.
    """
    if not hasattr(model, "should_save_on_this_rank"):
        yield
        return
    model.should_save_on_this_rank = bool
    try:
        yield
    finally:
        del model.should_save_on_this_rank
