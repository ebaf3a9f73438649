"""What an averaging method is.

A method is a generator over one bucket: it yields what is to travel, gets back what came, and returns the new
parameters. What stands between its first ``yield`` and its end happens behind the computing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from torch import Tensor

from hf_decentral.rounds import Round
from hf_decentral.transport.wire import Send

State = dict[str, Any]
"""What a method remembers of one bucket from round to round; part of a checkpoint. Nothing may be written to
it before the first ``yield``, so that beginning a round again changes nothing."""

Exchange = Generator[Send, Tensor, Tensor]
Averaging = Callable[[Tensor, Round, State], Exchange]
"""``method(x [W, P], round, state)`` yields :class:`Send` and returns the averaged ``[W, P]``."""
