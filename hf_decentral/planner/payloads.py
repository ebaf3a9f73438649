"""What an averaging method sends and costs, found by letting it do one exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from hf_decentral import averaging
from hf_decentral.averaging.base import Local, State
from hf_decentral.cluster.measured import Coding, Measured
from hf_decentral.optim.flight import Flight
from hf_decentral.topology.complete import complete
from hf_decentral.transport import Memory, Pending, Send

_SIDE = 512
"""Of the matrix that is exchanged: a quarter of a million numbers, which shows no ends any more."""

_SIZE = 0.02  # standard deviation of the numbers, as of weights when training begins

STEP_PASSES, COMBINE_PASSES, ENCODE_PASSES, DECODE_PASSES = 7, 3, 6, 3
"""Reads and writes of all parameters by a step of Adam (four read, three written), by a weighted sum, by an
encoding that keeps what it lost, and by the decoding of a message into a sum."""

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
"""In which parameters may be held and sent."""


@dataclass(frozen=True)
class Payload:
    """One exchange of a method between two workers.

    Attributes:
        share: bytes that a worker sent, as a share of the parameters' bytes.
        coded: whether these were codes, which no collective can sum.
        left: the consensus distance after the exchange, as a share of that before; a plain average of two
            leaves nothing.
    """

    share: float
    coded: bool
    left: float


class _Seeing(Memory):
    """The wire of two workers of one process, which sees whether codes travel."""

    coded = False

    def start(self, request: Send, step: int, lane: int) -> Pending:
        """See :meth:`Memory.start`."""
        self.coded = self.coded or request.codec is not None
        return super().start(request, step, lane)


@lru_cache(maxsize=64)
def payload(name: str, dtype: torch.dtype = torch.float32) -> Payload:
    """What a method sends of many numbers from a normal distribution, counted as the simulator counts.

    Raises:
        SettingsError: no method has that name.
    """
    method = averaging.build(name)
    topology, wire, state = complete(2), _Seeing(2), State()
    state.local = Local(workers=(0, 1), loss=torch.ones(2))
    x = torch.zeros(2, _SIDE * _SIDE, dtype=dtype)
    if method.prepare is not None:
        method.prepare(x, topology.rounds(), [(0, (_SIDE, _SIDE))], state)
    x.copy_(_SIZE * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)))
    before = float((x[0] - x[1]).double().norm())
    Flight(method(x, topology(0), state), x, wire, 0, 0, method.background).finish()
    after = float((x[0] - x[1]).double().norm())
    return Payload(wire.sent_bytes / (x[0].numel() * x.element_size()), wire.coded, after / before)


def dtype_of(measured: Measured) -> torch.dtype:
    """In which the parameters are sent: what ``about`` tells, else float32."""
    return DTYPES.get(str(measured.about.get("dtype", "")).removeprefix("torch."), torch.float32)


def coding(measured: Measured, name: str) -> Coding | None:
    """What a method costs on this cluster; None: it sends parameters that collectives can sum.

    Where it was not measured, its bytes are counted (:func:`payload`) and its seconds estimated: it waits for
    memory, as the optimizer's step does, so they are shares of that step by the passes over all parameters.

    Raises:
        SettingsError: no method has that name.
    """
    known = measured.work.codings.get(name)
    if known is not None:
        return known
    found = payload(name, dtype_of(measured))
    if not found.coded and found.share >= 1:
        return None
    a_pass = measured.work.local_seconds / STEP_PASSES
    return Coding(found.share, ENCODE_PASSES * a_pass, DECODE_PASSES * a_pass)
