"""Parameters by name, against the models themselves, made without memory."""

from __future__ import annotations

import pytest
import torch

from hf_decentral.errors import SettingsError
from hf_decentral.planner.models import MODELS, parameters


def count(make) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("name", "layers", "width", "heads"),
    [
        ("gpt2-small", 12, 768, 12),
        ("gpt2-medium", 24, 1024, 16),
        ("gpt2-large", 36, 1280, 20),
        ("gpt2-xl", 48, 1600, 25),
    ],
)
def test_gpt2(name, layers, width, heads):
    from transformers import GPT2Config, GPT2LMHeadModel

    assert (
        count(lambda: GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads))) == MODELS[name]
    )


def test_llama_and_resnet():
    from transformers import LlamaConfig, LlamaForCausalLM, ResNetConfig, ResNetForImageClassification

    assert count(lambda: LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False))) == MODELS["llama-2-7b"]
    three = LlamaConfig(
        vocab_size=128256, intermediate_size=14336, num_key_value_heads=8, tie_word_embeddings=False
    )
    assert count(lambda: LlamaForCausalLM(three)) == MODELS["llama-3-8b"]
    assert count(lambda: ResNetForImageClassification(ResNetConfig(num_labels=1000))) == MODELS["resnet-50"]


def test_bert_and_t5():
    from transformers import BertConfig, BertModel, T5Config, T5ForConditionalGeneration

    large = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    base = T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12)
    assert count(lambda: BertModel(BertConfig())) == MODELS["bert-base"]
    assert count(lambda: BertModel(large)) == MODELS["bert-large"]
    assert count(lambda: T5ForConditionalGeneration(T5Config())) == MODELS["t5-small"]
    assert count(lambda: T5ForConditionalGeneration(base)) == MODELS["t5-base"]


def test_names():
    assert parameters(" GPT2 ") == MODELS["gpt2-small"]
    with pytest.raises(SettingsError, match="gpt2-xl"):
        parameters("gpt-2-xl")
