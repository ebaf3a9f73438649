"""The local optimizer and its gossip: buckets, the four words, the consensus."""

from __future__ import annotations

from hf_decentral.optim.attach import decentralize, gossip
from hf_decentral.optim.consensus import averaged
from hf_decentral.optim.handle import Gossip
from hf_decentral.optim.plan import Order

__all__ = ["Gossip", "Order", "averaged", "decentralize", "gossip"]
