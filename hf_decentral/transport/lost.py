"""Who was lost first.

When a worker dies, its partners see a broken connection, end with an error, and by that break the
connections of their own partners. Each worker that fails therefore leaves a note in the store of the run, and
reads the others' notes before it names the lost one: a worker that left a note is a witness, not the cause.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from hf_decentral.errors import DecentralizedError, PeerLost
from hf_decentral.errors.peers import peer_ended, peer_lost

_PATIENCE_SECONDS = 3.0
_WITNESS, _ENDED, _PASSED = "witness", "ended", "passed"


# Where in its sources gloo failed, and its guess at the reason: the notes know that better.
_PLACE, _GUESS = re.compile(r"^\[[^\]]*\] "), re.compile(r"\. This is typically caused by .*$")


def of_the_wire(error: Exception) -> bool:
    """Whether this is an error of torch.distributed, and not one of the code around it."""
    if isinstance(error, DecentralizedError):
        return False
    told = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in told or "nccl" in told


def cause_of(error: Exception) -> str:
    """What the wire said, in one line."""
    lines = str(error).strip().splitlines()
    return _GUESS.sub("", _PLACE.sub("", lines[0])) if lines else type(error).__name__


class Notes:
    """Short notes of the workers of one group, in the store that the launcher keeps."""

    def __init__(self, me: int, name: str) -> None:
        self._me = me
        store = dist.distributed_c10d._get_default_store()
        self._store = PrefixStore(f"hf_decentral/{name}", store)

    def ended(self, step: int) -> None:
        """This worker ends of its own will."""
        self._leave(_ENDED, str(step))

    def passed(self, step: int) -> None:
        """This worker has come so far, for those who wait for it and do not hear it."""
        self._leave(_PASSED, str(step))

    def passed_by(self, worker: int) -> int:
        """How far another worker has come; -1 where it is not known."""
        return int(self._read(_PASSED, worker) or -1)

    def explain(
        self,
        suspects: Sequence[int],
        round: int,
        waited_seconds: float | None,
        deadline_seconds: float | None,
        cause: str,
    ) -> PeerLost:
        """The error to raise when ``suspects`` did not answer; None: it is not known how long they had."""
        self._leave(_WITNESS, ",".join(map(str, suspects)))
        lost = self._follow(list(suspects))
        for worker in lost:
            steps = self._read(_ENDED, worker)
            if steps is not None:
                return peer_ended([worker], int(steps), self._me, round)
        return peer_lost(lost, self._me, round, waited_seconds, deadline_seconds, cause)

    def _follow(self, suspects: list[int]) -> list[int]:
        """Replace witnesses among the suspects by those whom they suspect, until nothing changes."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            seen, lost = {self._me}, []
            queue = list(suspects)
            while queue:
                worker = queue.pop(0)
                if worker in seen:
                    continue
                seen.add(worker)
                testimony = self._read(_WITNESS, worker)
                if testimony is None:
                    lost.append(worker)
                else:
                    queue += [int(w) for w in testimony.split(",") if w]
            if (len(lost) == 1 and len(suspects) > 1) or time.monotonic() > until:
                return sorted(lost) or sorted(suspects)
            time.sleep(0.1)

    def _leave(self, kind: str, text: str) -> None:
        with suppress(RuntimeError):  # the store died with its host; what we know ourselves must do
            self._store.set(f"{kind}/{self._me}", text)

    def _read(self, kind: str, worker: int) -> str | None:
        key = f"{kind}/{worker}"
        try:
            return self._store.get(key).decode() if self._store.check([key]) else None
        except RuntimeError:
            return None
