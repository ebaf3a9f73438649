"""Parameters of models by name. Those that train; tied ones count once."""

from __future__ import annotations

from collections.abc import Mapping

from hf_decentral.errors import unknown_name

MODELS: Mapping[str, int] = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-small": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "resnet-50": 25_557_032,
    "t5-base": 222_903_552,
    "t5-small": 60_506_624,
}


def parameters(name: str) -> int:
    """The parameters of a model.

    Raises:
        SettingsError: the name is not known.
    """
    key = name.strip().lower()
    if key not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[key]
