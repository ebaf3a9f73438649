"""Decentralized (gossip) data-parallel training for Hugging Face Accelerate and plain PyTorch.

    from hf_decentral import AccumAdamW, decentralize, gossip

    optimizer = decentralize(AccumAdamW(model.parameters(), lr=1e-3), topology="aer", model=model)
    ...                                        # the training loop is the user's own
    with gossip(optimizer).averaged(model):    # the mean of all workers
        evaluate(model)

Names are imported when they are first used, so that ``import hf_decentral`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_decentral import averaging, topology
    from hf_decentral.errors import DecentralizedError
    from hf_decentral.integrations.plugin import DecentralizedPlugin
    from hf_decentral.optim import decentralize, gossip
    from hf_decentral.optim.accum_adam import AccumAdam, AccumAdamW
    from hf_decentral.planner import plan
    from hf_decentral.simulator import simulate
    from hf_decentral.trainer import (
        DecentralizedSeq2SeqTrainer,
        DecentralizedSeq2SeqTrainingArguments,
        DecentralizedTrainer,
        DecentralizedTrainingArguments,
    )

__all__ = [
    "AccumAdam",
    "AccumAdamW",
    "DecentralizedError",
    "DecentralizedPlugin",
    "DecentralizedSeq2SeqTrainer",
    "DecentralizedSeq2SeqTrainingArguments",
    "DecentralizedTrainer",
    "DecentralizedTrainingArguments",
    "averaging",
    "decentralize",
    "gossip",
    "plan",
    "simulate",
    "topology",
]

_FOUND_IN = {
    "AccumAdam": "hf_decentral.optim.accum_adam",
    "AccumAdamW": "hf_decentral.optim.accum_adam",
    "DecentralizedError": "hf_decentral.errors",
    "DecentralizedPlugin": "hf_decentral.integrations.plugin",
    "DecentralizedSeq2SeqTrainer": "hf_decentral.trainer",
    "DecentralizedSeq2SeqTrainingArguments": "hf_decentral.trainer",
    "DecentralizedTrainer": "hf_decentral.trainer",
    "DecentralizedTrainingArguments": "hf_decentral.trainer",
    "decentralize": "hf_decentral.optim",
    "gossip": "hf_decentral.optim",
    "plan": "hf_decentral.planner",
    "simulate": "hf_decentral.simulator",
}


def __getattr__(name: str) -> Any:
    if name in _FOUND_IN:
        return getattr(import_module(_FOUND_IN[name]), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
