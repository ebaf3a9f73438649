"""Fewer bytes on the wire: one codec a file. Who sends, and what becomes of the loss, is not known here."""

from __future__ import annotations

from hf_decentral.codecs.base import Codec, Span
from hf_decentral.codecs.blockwise import Blockwise
from hf_decentral.codecs.half import Half
from hf_decentral.codecs.low_rank import LowRank
from hf_decentral.codecs.modulo import Modulo
from hf_decentral.codecs.names import TABLE, Row
from hf_decentral.codecs.sparse import RandomK, TopK

__all__ = ["TABLE", "Blockwise", "Codec", "Half", "LowRank", "Modulo", "RandomK", "Row", "Span", "TopK"]
