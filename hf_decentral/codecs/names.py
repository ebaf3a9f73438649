"""Codecs by name, with numbers behind it: ``int8``, ``top_k(0.01)``. One row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hf_decentral.codecs.base import Codec
from hf_decentral.codecs.blockwise import Blockwise
from hf_decentral.codecs.half import Half
from hf_decentral.codecs.low_rank import LowRank
from hf_decentral.codecs.sparse import RandomK, TopK
from hf_decentral.errors import out_of_range


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        make: ``make(spreads, *numbers)`` gives the codec; for ``spreads`` see :class:`Codec`. Codecs that
            leave most numbers out have no such choice: what is not finite is left out.
        gamma: ``gamma(*numbers)`` is how far a round may go where the loss is remembered; the less a codec
            sends, the smaller. Measured on MNIST with 16 workers on a ring, whose shards are skewed.
        defaults: the numbers that may stand behind the name.
        whole: which of them must be whole.
    """

    make: Callable[..., Codec]
    gamma: Callable[..., float] = lambda *numbers: 1.0
    defaults: tuple[float, ...] = ()
    whole: tuple[bool, ...] = ()


def fraction_of(value: float) -> float:
    """A share of the numbers that can be sent.

    Raises:
        SettingsError: it is not in (0, 1].
    """
    if not 0 < value <= 1:
        raise out_of_range(
            "fraction", value, "more than 0 and at most 1", "0.01 sends one number in a hundred"
        )
    return value


def rank_of(value: float) -> int:
    """A number of columns.

    Raises:
        SettingsError: below 1.
    """
    if value < 1:
        raise out_of_range("rank", value, "1 or more", "4 is common")
    return int(value)


TABLE: dict[str, Row] = {
    "bf16": Row(lambda spreads: Half(torch.bfloat16, spreads)),
    "fp16": Row(lambda spreads: Half(torch.float16, spreads)),
    "int4": Row(lambda spreads: Blockwise(4, spreads)),
    "int8": Row(lambda spreads: Blockwise(8, spreads)),
    "low_rank": Row(
        lambda spreads, rank: LowRank(rank_of(rank)), lambda rank: min(1.0, 0.05 * rank), (4,), (True,)
    ),
    "random_k": Row(
        lambda spreads, fraction: RandomK(fraction_of(fraction)),
        lambda fraction: max(0.1, fraction),
        (0.1,),
        (False,),
    ),
    "top_k": Row(
        lambda spreads, fraction: TopK(fraction_of(fraction)),
        lambda fraction: min(1.0, max(0.1, 1.6 * fraction)),
        (0.05,),
        (False,),
    ),
}
