"""What of a model is copied, and what a snapshot leaves out."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hf_decentral.integrations.snapshot import frozen, own_memory


class Quantized(nn.Linear):
    """A layer that keeps numbers of its own beside its weight, as quantized ones do."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight.scale"] = torch.ones(1)


def test_only_frozen_weights_that_fill_their_memory_are_not_copied() -> None:
    model = nn.Sequential(nn.Linear(2, 3), Quantized(3, 2), nn.BatchNorm1d(2))
    model[1].requires_grad_(False)
    flat = torch.zeros(9)
    model[1].bias.data = flat[3:5]  # as after a gossip in which it was trained
    assert frozen(model) == {"1.weight", "1.bias", "1.weight.scale"}
    state = model.state_dict()
    copied = own_memory(state, shared=frozen(model))
    same = {name for name, value in copied.items() if value.data_ptr() == state[name].data_ptr()}
    assert same == {"1.weight", "1.weight.scale"}
    assert copied.keys() == state.keys()
    assert all(torch.equal(copied[name], value) for name, value in state.items())
