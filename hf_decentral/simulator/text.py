"""A causal transformer that reads characters."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from hf_decentral.data import resolve
from hf_decentral.errors import out_of_range
from hf_decentral.errors.simulator import too_short
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.seeding import seeded

CONTEXTS = 128
"""Contexts that are held out: from the end of the text, which nobody trains on."""


class Block(nn.Module):
    """Attention to what came before, and a perceptron; each adds to its input.

    Args:
        dim: width.
        heads: number of attention heads.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(dim)
        self.mixed = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.before_perceptron = nn.LayerNorm(dim)
        self.perceptron = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, length, dim]`` to the same."""
        batch, length, dim = x.shape
        mixed = self.mixed(self.before_attention(x))
        query, key, value = mixed.view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (dim // self.heads) ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        found = scores.masked_fill(later, float("-inf")).softmax(-1) @ value
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, dim))
        perceived: Tensor = self.perceptron(self.before_perceptron(x))
        return x + perceived


class CharGPT(nn.Module):
    """Characters in, scores of the next ones out.

    Args:
        characters: how many there are.
        length: longest context.
        dim: width.
        layers: number of blocks.
        heads: attention heads of each.
    """

    def __init__(self, characters: int, length: int, dim: int, layers: int, heads: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, dim)
        self.positions = nn.Parameter(torch.empty(length, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(layers)))
        self.last = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, characters, bias=False)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[batch, length]`` to ``[batch, length, characters]``."""
        x = self.characters(tokens) + self.positions[: tokens.shape[1]]
        scores: Tensor = self.head(self.last(self.blocks(x)))
        return scores


def char_gpt(
    dim: int = 32,
    seed: int = 0,
    *,
    layers: int = 2,
    heads: int = 2,
    length: int = 32,
    data: str | Path | None = None,
    batch: int = 8,
) -> Problem:
    """A small GPT on the characters of a text.

    Args:
        dim: width, a multiple of ``heads``.
        seed: of the starting weights.
        layers: number of blocks.
        heads: attention heads of each.
        length: characters of a context.
        data: a file or folder of text; None: the small text of the package.
        batch: contexts of each worker in each step.

    Raises:
        DataError: no text, or too little.
        SettingsError: a width that the heads cannot share.
    """
    if dim < 1 or heads < 1 or dim % heads:
        raise out_of_range("dim", dim, f"a multiple of heads={heads}", "change one of them")
    corpus = resolve(None if data is None else str(data))
    text = "\n".join(corpus.documents(0))
    known = sorted(set(text))
    numbers = {character: k for k, character in enumerate(known)}
    tokens = torch.tensor([numbers[character] for character in text])
    held_out = CONTEXTS * length + 1
    if len(tokens) < 2 * held_out:
        raise too_short(corpus.name, len(tokens), 2 * held_out)
    train, valid = tokens[:-held_out], tokens[-held_out:]
    with seeded(seed):
        model = CharGPT(len(known), length, dim, layers, heads)
    # Every position begins a context: views of one text, not copies.
    return Problem(
        name="char-gpt",
        model=model,
        loss=_cross_entropy,
        train=(train[:-1].unfold(0, length, 1), train[1:].unfold(0, length, 1)),
        valid=(valid[:-1].view(-1, length), valid[1:].view(-1, length)),
        batch=batch,
    )


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
