"""Which round comes next, also where that depends on how far apart the workers are (consensus control).

The consensus distance takes as many bytes as an exchange; a sketch of it takes two kilobytes. With signs
``a`` drawn at random and a worker's parameters cut into rows of :data:`WIDTH`, ``s_i = sum_r a_r x_i[r]`` is
linear in ``x_i``, and ``mean_i ||s_i - mean s||^2`` has the squared consensus distance as its expectation (a
random projection; its relative standard error is at most ``sqrt(2 / WIDTH)`` where the differences are spread
evenly). The means of ``s_i`` and ``||s_i||^2`` over the workers travel behind the computing, so that the
decision rests on the parameters of one step ago, and is the same on every worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hf_decentral.rounds import Round
from hf_decentral.topology.base import Topology
from hf_decentral.transport import Pending, Send, Transport
from hf_decentral.transport.combine import HALF

WIDTH = 256


class Schedule:
    """Tells the round of a step.

    Args:
        topology: whose rounds take place, all of them or those that the distance asks for.
        transport: how to reach the others.

    Attributes:
        distance: the latest estimate of the consensus distance, where rounds wait for it.
    """

    def __init__(self, topology: Topology, transport: Transport) -> None:
        self._topology = topology
        self._transport = transport
        self._idle = Round.identity(topology.workers)
        self._mean = Round.average([range(topology.workers)], topology.workers)
        self._signs: dict[int, Tensor] = {}
        self._sketch: Tensor | None = None
        self._pending: Pending | None = None
        self._step = -1
        self._round = self._idle
        self._begun = 0
        self._before = 0, 0.0
        self.distance = 0.0

    def __call__(self, step: int) -> Round:
        """The round of a step; steps are asked for in their order, each as often as wanted."""
        if not self._topology.least:
            return self._topology(step)
        if step != self._step:
            self.read()
            # Written so that a distance that is no number asks for a round.
            idle = self.distance < self._topology.least
            self._before = self._begun, self.distance
            self._round = self._idle if idle else self._topology(self._begun)
            self._begun += not idle
            self._step = step
        return self._round

    def peek(self, step: int) -> Round:
        """The same, where it is decided; else the round that comes next. Decides nothing."""
        if not self._topology.least:
            return self._topology(step)
        return self._round if step == self._step else self._topology(self._begun)

    @torch.no_grad()
    def look(self, flats: Sequence[Tensor], step: int) -> None:
        """Begin to estimate how far apart the workers are, from the buckets ``[W, P]`` of this process."""
        if not self._topology.least or not flats:
            return
        self.read()
        if self._sketch is None or self._sketch.device != flats[0].device:
            self._sketch = flats[0].new_empty((len(flats[0]), WIDTH + 1), dtype=torch.float64)
        sketch = self._sketch.zero_()
        for lane, x in enumerate(flats):
            self._add(_real(x), lane, sketch[:, :WIDTH])
        sketch[:, WIDTH] = sketch[:, :WIDTH].square().sum(1)
        self._pending = self._transport.start(Send(self._mean, sketch), step, len(flats))

    def settle(self) -> None:
        """Wait until nothing is on the wire."""
        if self._pending is not None:
            self._pending.settle()

    def state(self, step: int, combined: bool) -> dict[str, Any]:
        """What a checkpoint must hold; the round of ``step`` is begun again unless it is combined."""
        again = not combined and step == self._step
        begun, distance = self._before if again else (self._begun, self.distance)
        return {"rounds": begun, "distance": distance}

    def load(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        self._pending = None
        self._step = -1
        self._round = self._idle
        self._begun = int(state.get("rounds", 0))
        self.distance = float(state.get("distance", 0.0))
        self._before = self._begun, self.distance

    def read(self) -> None:
        """Wait for the latest estimate."""
        if self._pending is not None:
            mean = self._pending.result()[0]
            self._pending = None
            # Rounding may leave a little less than nothing.
            self.distance = float((mean[WIDTH] - mean[:WIDTH].square().sum()).clamp(min=0).sqrt())

    def _add(self, x: Tensor, lane: int, sketch: Tensor) -> None:
        """Add the sketch of one bucket ``[W, P]``."""
        rows, whole = x.shape[1] // WIDTH, x.shape[1] // WIDTH * WIDTH
        signs = self._signs.get(lane)
        if signs is None or len(signs) != rows + 1 or signs.device != x.device or signs.dtype != x.dtype:
            drawn = torch.randint(0, 2, (rows + 1,), generator=torch.Generator().manual_seed(lane))
            signs = self._signs[lane] = (2 * drawn - 1).to(x)
        for own, out in zip(x, sketch, strict=True):
            if rows:
                out += (signs[:rows] @ own[:whole].view(rows, WIDTH)).to(out.device)
            out[: len(own) - whole] += (signs[rows] * own[whole:]).to(out.device)


def _real(x: Tensor) -> Tensor:
    """The numbers of a bucket, two for a complex one; half precision is summed in single."""
    if x.is_complex():
        return torch.view_as_real(x).flatten(1)
    return x.float() if x.dtype in HALF else x
