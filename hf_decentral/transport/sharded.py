"""An average over two hosts by shards: see :mod:`hf_decentral.topology.shards`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from hf_decentral.topology.shards import Shards
from hf_decentral.transport.combine import Combiner
from hf_decentral.transport.wire import Send

Mail = Sequence[tuple[int, Tensor]]
"""Workers, and the vector that each shall send or get."""

Swap = Callable[[int, Mail, Mail], None]
"""``swap(phase, inbox, outbox)`` gets and sends messages and returns when all of them have travelled."""


def shard_length(elements: int, workers: int) -> int:
    """Elements of the shard of each of ``workers`` workers; those of the last ones may be shorter."""
    return -(-elements // workers)


class Sharded:
    """One exchange. Its three phases run one after the other behind the computing.

    The phases inside the host are messages between its workers, each shard straight to where it is summed:
    they send as few bytes as collectives would, do so in one step, need no group, and the loss of a worker is
    known by its number. Half precision is summed in float32, and rounded once for the host and once for both.

    Args:
        request: what is averaged; its payload ``[1, P]`` is only read.
        shards: how this worker takes part.
        place: this worker's place among those of its host.
        space: ``[(m + 1) * size]`` for ``m`` workers a host with shards of ``size`` elements: ``m`` for what
            comes from the workers inside, the average in the end, and one for what comes from across.
        swap: sends and receives.
        combine: takes the sums.
    """

    def __init__(
        self, request: Send, shards: Shards, place: int, space: Tensor, swap: Swap, combine: Combiner
    ) -> None:
        self.round = request.round
        self._request = request
        self._shards = shards
        self._place = place
        self._space = space
        self._swap = swap
        self._combine = combine
        self._joined: Callable[[], None] = lambda: None

    def begin(self, behind: Callable[[Callable[[], None]], Callable[[], None]]) -> Sharded:
        """Let the phases run; ``behind`` is that of a transport."""
        self._joined = behind(self._travel)
        return self

    def settle(self) -> None:
        """Wait for all phases; the payload is not written to."""
        self._joined()

    def result(self) -> Tensor:
        """The average, ``[1, P]``."""
        self.settle()
        payload, into = self._request.payload, self._request.into
        whole = self._space[: payload.shape[1]].unsqueeze(0)
        return whole if into is None else into.copy_(whole)

    def _travel(self) -> None:
        """1 sum the own shard inside the host   2 swap it with the other host   3 gather all shards inside"""
        payload, inside, place = self._request.payload[0], self._shards.inside, self._place
        size = shard_length(len(payload), len(inside))
        parts = [payload[k * size : (k + 1) * size] for k in range(len(inside))]
        slots = [self._space[k * size : (k + 1) * size] for k in range(len(inside) + 1)]
        mine = parts[place]
        others = [k for k in range(len(inside)) if k != place]

        heard = [slot[: len(mine)] for slot in slots]
        own = heard[place].copy_(mine)
        self._swap(1, [(inside[k], heard[k]) for k in others], [(inside[k], parts[k]) for k in others])
        self._combine(heard[:-1], [1 / len(inside)] * len(inside), own)
        if self._shards.across:
            partner, weight = self._shards.across[place], self._shards.weight
            self._swap(2, [(partner, heard[-1])], [(partner, own)])
            self._combine([own, heard[-1]], [1 - weight, weight], own)
        self._swap(
            3,
            [(inside[k], slots[k][: len(parts[k])]) for k in others],
            [(inside[k], own) for k in others],
        )
