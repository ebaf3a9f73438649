"""What an averaging method remembers of the buckets of one optimizer."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hf_decentral.averaging import Averaging, State
from hf_decentral.errors.averaging import no_complex
from hf_decentral.errors.parameters import wrong_checkpoint
from hf_decentral.optim.bucket import Buckets
from hf_decentral.topology.base import Topology
from hf_decentral.transport import Transport


class Memories:
    """One :class:`State` for each bucket.

    Args:
        method: the averaging method.
        topology: whose rounds it will be called with.
        workers: the numbers of the workers here.
        late: whether exchanges travel for several steps, so that what is on the wire is remembered too.
    """

    def __init__(
        self, method: Averaging, topology: Topology, workers: tuple[int, ...], late: bool = False
    ) -> None:
        self._method = method
        self._topology = topology
        self._workers = workers
        self._late = late
        self.states: list[State] = []
        self._unknown = False

    @property
    def anew(self) -> bool:
        """True where a state was loaded that tells nothing of what the neighbours know: the workers may be
        apart, and must meet before they begin to remember."""
        return self._unknown and not self.forgetful

    @property
    def forgetful(self) -> bool:
        """True where nothing is remembered, so that new buckets need no common beginning."""
        return self._method.prepare is None and not self._late

    def clear(self) -> None:
        """Forget everything."""
        self.states = []
        self._unknown = False

    def fit(self, buckets: Buckets) -> None:
        """Have a state for each bucket; new ones are prepared, for which all workers must be equal.

        Raises:
            MismatchError: what was loaded belongs to other parameters or to another topology.
            SettingsError: complex parameters under a method for real ones.
        """
        if self._method.real and any(x.is_complex() for x in buckets.flats):
            raise no_complex()
        if self.forgetful:
            self.states = [State() for _ in buckets.flats]
            return
        loaded, rounds = any(self.states), self._topology.repeated() or ()
        if loaded and len(self.states) != len(buckets.flats):
            raise wrong_checkpoint(f"{len(self.states)} buckets", f"{len(buckets.flats)}")
        if not loaded:
            self.states = [State() for _ in buckets.flats]
        for state in self.states:
            state.local.workers = self._workers
        for x, layout, state in zip(buckets.flats, buckets.layouts, self.states, strict=True):
            known = set(state)
            state.update({name: _at(x, item) for name, item in state.items() if isinstance(item, Tensor)})
            if self._method.prepare is not None:
                self._method.prepare(x, rounds, layout, state)
            if loaded and known and set(state) != known:  # workers apart must not begin to remember anew
                raise wrong_checkpoint("another topology", f"topology {self._topology.name!r}")

    def begin_anew(self, buckets: Buckets) -> None:
        """All workers are equal again: what was remembered belongs to workers that were apart."""
        self.clear()
        self.fit(buckets)

    def meet(self, buckets: Buckets, transport: Transport) -> None:
        """Where nothing is known of the neighbours, begin anew from the mean of all. Collective then."""
        if self.anew:
            for flat in buckets.flats:
                transport.average_(flat)
            self.begin_anew(buckets)

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint must hold."""
        return [dict(state) for state in self.states]

    def load(self, states: list[dict[str, Any]] | None) -> None:
        """Remember what :meth:`state` gave; None: nothing is known."""
        self._unknown, states = states is None, states or []
        self.states = [
            State({name: item.clone() if isinstance(item, Tensor) else item for name, item in items.items()})
            for items in states
        ]


def _at(x: Tensor, item: Tensor) -> Tensor:
    """What was remembered of a bucket, beside it."""
    kept = item.dim() == 3 and len(item) == len(x)  # whose further shape the method looks at
    if not kept and item.shape != x.shape and item.shape != (len(x), x.shape[1] + 1):
        raise wrong_checkpoint(f"a bucket of {list(item.shape)}", f"one of {list(x.shape)}")
    return item.to(x.device)
