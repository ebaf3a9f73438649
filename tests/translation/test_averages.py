"""The mean of checkpoints, whole and in parts, and those that cannot be averaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from hf_decentral.errors import CheckpointError
from hf_decentral.translation import average_checkpoints, transformer


@pytest.mark.parametrize("part", ["5GB", "200KB"])
def test_the_mean_of_models_loads_into_one(vocabulary: Any, tmp_path: Path, part: str) -> None:
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(transformer("tiny", vocabulary))
        models[-1].save_pretrained(tmp_path / str(seed), max_shard_size=part)
    assert (tmp_path / "0" / "model.safetensors").exists() == (part == "5GB")
    mean = average_checkpoints([tmp_path / str(seed) for seed in range(3)])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "0")
    assert not model.load_state_dict(mean, strict=False).unexpected_keys
    for name, parameter in model.named_parameters():
        wanted = sum(one.get_parameter(name).double() for one in models) / 3
        assert torch.allclose(parameter.double(), wanted, atol=1e-7), name
    assert model.lm_head.weight is model.model.shared.weight


def saved(folder: Path, **tensors: torch.Tensor) -> Path:
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_halves_are_summed_in_float32(tmp_path: Path) -> None:
    ones = [saved(tmp_path / str(k), w=torch.tensor([256.0 + 2 * k]).bfloat16()) for k in range(8)]
    mean = average_checkpoints(ones)["w"]
    assert mean.dtype is torch.bfloat16
    assert mean == torch.tensor([263.0]).bfloat16()  # a sum in bfloat16 rounds to another one
    one = average_checkpoints(ones[:1])["w"]
    assert one == 256


def test_integers_are_those_of_the_last(tmp_path: Path) -> None:
    ones = [saved(tmp_path / str(k), w=torch.ones(2) * k, count=torch.tensor([k])) for k in range(2)]
    assert average_checkpoints(ones)["count"] == 1 and average_checkpoints(ones)["w"].tolist() == [0.5, 0.5]


def test_what_cannot_be_averaged(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No checkpoint"):
        average_checkpoints([])
    good = saved(tmp_path / "good", w=torch.ones(2), b=torch.ones(1))
    with pytest.raises(CheckpointError, match="nothing.*it holds none"):
        average_checkpoints([good, tmp_path / "nothing"])
    with pytest.raises(CheckpointError, match="differ in b, w"):
        average_checkpoints([good, saved(tmp_path / "other", w=torch.ones(3))])
    (good / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="good.*cannot be averaged"):
        average_checkpoints([good])


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": {"w": "gone.safetensors"}}'])
def test_a_damaged_index(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match="cannot be averaged"):
        average_checkpoints([tmp_path])
