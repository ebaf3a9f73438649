"""What is trained: an emulated accelerator, or real models on random data."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from hf_decentral.bench.settings import Workload
from hf_decentral.errors import unknown_name

LAYERS = 16
_COLUMNS = 64  # parameters are matrices, so that a method of low rank has something to do
_BACKWARD = 2  # times as long as forward, as in real models

Inputs = dict[str, Tensor]


class _Sleep(torch.autograd.Function):
    """A layer of an emulated accelerator: it sleeps, so that the processor stays free for the network."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gradient: Tensor, seconds: float) -> Tensor:
        ctx.gradient, ctx.seconds = gradient, seconds
        time.sleep(seconds)
        return x + 0

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        time.sleep(_BACKWARD * ctx.seconds)
        return grads[0], ctx.gradient, None, None


class Emulated(nn.Module):
    """A model of 16 layers whose steps take a given time and no processor.

    Args:
        seconds: of forward and backward together; a third of it is forward.
        parameters: about how many numbers, in 16 matrices.

    Attributes:
        slowdown: how many times longer the next step takes; 0 sleeps not at all.
    """

    def __init__(self, seconds: float, parameters: int) -> None:
        super().__init__()
        rows = _rows(parameters)
        self.layers = nn.ParameterList(nn.Parameter(torch.zeros(rows, _COLUMNS)) for _ in range(LAYERS))
        # No buffer: DistributedDataParallel would send it to all workers in every step.
        self._gradient = torch.full((rows, _COLUMNS), 1e-3)
        self.slowdown = 1.0
        self._seconds = seconds / (1 + _BACKWARD) / LAYERS

    def forward(self, x: Tensor) -> SimpleNamespace:
        """``x`` is one number; what comes has a ``loss``, as of a model of transformers."""
        x = x.detach().requires_grad_()
        gradient = self._gradient = self._gradient.to(x.device)
        for weight in self.layers:
            x = _Sleep.apply(x, weight, gradient, self.slowdown * self._seconds)  # type: ignore[no-untyped-call]
        return SimpleNamespace(loss=x.sum())


def _rows(parameters: int) -> int:
    """Rows of each matrix of an emulated model."""
    return max(1, parameters // LAYERS // _COLUMNS)


def _gpt2(layers: int, width: int, heads: int, vocabulary: int = 50257, positions: int = 1024) -> Any:
    def make(settings: Workload) -> nn.Module:
        # Imported here, as below: emulated workers need not wait for it.
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=vocabulary, n_positions=max(positions, settings.block_size), n_embd=width,
            n_layer=layers, n_head=heads, bos_token_id=0, eos_token_id=0, use_cache=False,
        )  # fmt: skip
        return GPT2LMHeadModel(config)

    return make


def _resnet(settings: Workload) -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    # The defaults of its configuration are the 50 layers.
    return ResNetForImageClassification(ResNetConfig(id2label={k: str(k) for k in range(1000)}))


MODELS: dict[str, Callable[[Workload], nn.Module]] = {
    "gpt2-nano": _gpt2(1, 32, 1, 2048, 1),
    "gpt2-tiny": _gpt2(4, 256, 4, 2048, 1),
    "gpt2-small": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "resnet-50": _resnet,
}


def build(settings: Workload) -> nn.Module:
    """The model of the settings, the same on every worker, on the default device.

    Raises:
        SettingsError: no model has that name.
    """
    if settings.emulate_ms:
        return Emulated(settings.emulate_ms / 1e3, _numbers(settings))
    if settings.model not in MODELS:
        raise unknown_name("model", settings.model, MODELS)
    torch.manual_seed(settings.seed)
    return MODELS[settings.model](settings)


def batch(settings: Workload, worker: int, device: torch.device) -> Inputs:
    """A batch of random data, another one for each worker."""
    numbers = torch.Generator().manual_seed(settings.seed + 1 + worker)
    if settings.emulate_ms:
        return {"x": torch.zeros(1, device=device)}
    if settings.model == "resnet-50":
        pixels = torch.randn(settings.batch_size, 3, 224, 224, generator=numbers)
        labels = torch.randint(0, 1000, (settings.batch_size,), generator=numbers)
        return {"pixel_values": pixels.to(device), "labels": labels.to(device)}
    ids = torch.randint(0, 2048, (settings.batch_size, settings.block_size), generator=numbers).to(device)
    return {"input_ids": ids, "labels": ids}


def parameter_bytes(settings: Workload) -> int:
    """Bytes of the model's parameters, without making them.

    Raises:
        SettingsError: no model has that name.
    """
    if settings.emulate_ms:
        return 4 * LAYERS * _COLUMNS * _rows(_numbers(settings))
    with torch.device("meta"):
        model = build(settings)
    return sum(p.numel() * p.element_size() for p in model.parameters())


def _numbers(settings: Workload) -> int:
    return round(settings.emulate_mb * 1e6 / 4)


def slowdown(settings: Workload, worker: int, step: int) -> float:
    """How many times longer a worker computes in a step: the same in every variant and every run."""
    if settings.slow_worker is not None and worker != settings.slow_worker:
        return 1.0
    chance = settings.jitter or float(settings.slow_worker is not None)
    drawn = random.Random(f"{settings.seed}/{worker}/{step}").random()
    return settings.slowdown if drawn < chance else 1.0
