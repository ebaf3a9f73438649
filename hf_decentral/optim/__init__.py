"""The local optimizer and its gossip: buckets, the four words, the consensus."""

from __future__ import annotations

from hf_decentral.optim.decentralize import decentralize, gossip
from hf_decentral.optim.gossip import Gossip, averaged

__all__ = ["Gossip", "averaged", "decentralize", "gossip"]
