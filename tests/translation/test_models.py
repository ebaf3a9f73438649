"""The paper's transformer as a MarianMTModel: its sizes, its loss, its decoding, and what it saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

from hf_decentral.errors import SettingsError
from hf_decentral.translation import SIZES, encode, transformer


@pytest.fixture
def model(vocabulary: Any) -> Any:
    torch.manual_seed(0)
    return transformer("tiny", vocabulary, max_positions=64).eval()


def batch(tiny: Any, vocabulary: Any, rows: int = 4) -> Any:
    made = encode(tiny["train"].select(range(rows)), vocabulary, max_source_length=64, max_target_length=64)
    return transformers.DataCollatorForSeq2Seq(vocabulary)(list(made))


def matrices(layers: int, width: int, feed_forward: int) -> int:
    """Numbers in the layers of an encoder and a decoder with biases, counted from the paper's figure 1."""
    attention, norm = 4 * (width * width + width), 2 * width
    forward = 2 * width * feed_forward + feed_forward + width
    return layers * ((attention + forward + 2 * norm) + (2 * attention + forward + 3 * norm))


@pytest.mark.parametrize(("size", "millions"), [("base", 65), ("big", 213)])
def test_the_sizes_of_the_paper(vocabulary: Any, size: str, millions: int) -> None:
    row = SIZES[size]
    with torch.device("meta"):
        model = transformer(size, vocabulary)
    numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
    layers = matrices(row.layers, row.width, row.feed_forward)
    assert numbers == layers + len(vocabulary) * row.width
    # Table 3, with the paper's vocabulary of about 37,000.
    assert abs((layers + 37_000 * row.width) / 1e6 - millions) < 0.03 * millions
    assert model.config.decoder_attention_heads == row.heads == row.width // 64


def test_dropout_and_positions(vocabulary: Any) -> None:
    assert SIZES["base"].dropout == 0.1 and SIZES["big"].dropout == 0.3
    model = transformer("tiny", vocabulary, dropout=0.25, max_positions=48)
    assert model.config.dropout == 0.25 and model.config.max_position_embeddings == 48
    assert model.generation_config.max_length == 48


def test_bad_settings(vocabulary: Any) -> None:
    with pytest.raises(SettingsError, match=r"'bsae'(.|\n)*'base'"):
        transformer("bsae", vocabulary)
    with pytest.raises(SettingsError, match="dropout=1"):
        transformer("tiny", vocabulary, dropout=1.0)
    with pytest.raises(SettingsError, match="max_positions=1"):
        transformer("tiny", vocabulary, max_positions=1)


def test_one_matrix_serves_both_languages_and_the_output(model: Any) -> None:
    shared = model.model.shared.weight
    for other in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head):
        assert other.weight is shared
    assert not model.model.encoder.embed_positions.weight.requires_grad


def test_padded_labels_do_not_count(model: Any, tiny: Any, vocabulary: Any) -> None:
    given = batch(tiny, vocabulary)
    assert (given["labels"] == -100).any()
    out = model(**given)
    flat, labels = out.logits.flatten(0, 1), given["labels"].flatten()
    assert torch.allclose(out.loss, cross_entropy(flat[labels != -100], labels[labels != -100]), atol=1e-5)
    single = [
        model(**batch(tiny.__class__({"train": tiny["train"].select([k])}), vocabulary, 1)) for k in range(4)
    ]
    counts = (given["labels"] != -100).sum(1)
    mean = sum(one.loss * count for one, count in zip(single, counts, strict=True)) / counts.sum()
    assert torch.allclose(out.loss, mean, atol=1e-4)


def test_label_smoothing_of_the_trainer(model: Any, tiny: Any, vocabulary: Any) -> None:
    from transformers.trainer_pt_utils import LabelSmoother

    given = batch(tiny, vocabulary)
    out = model(**given)
    smoothed = LabelSmoother(epsilon=0.1)(out, given["labels"])
    kept = given["labels"] != -100
    wanted = cross_entropy(out.logits[kept], given["labels"][kept], label_smoothing=0.1)
    assert torch.allclose(smoothed, wanted, atol=1e-5)
    starts = model.prepare_decoder_input_ids_from_labels(given["labels"])
    assert (starts[:, 0] == vocabulary.bos_token_id).all() and (starts != -100).all()


def test_no_position_sees_a_later_one(model: Any) -> None:
    source, target = torch.tensor([[9, 8, 7, 1]]), torch.tensor([[3, 9, 10, 11, 12]])
    changed = target.clone()
    changed[0, 3] = 20
    one, other = (model(input_ids=source, decoder_input_ids=ids).logits for ids in (target, changed))
    assert torch.allclose(one[:, :3], other[:, :3], atol=1e-6) and not torch.allclose(one[:, 3], other[:, 3])


@pytest.mark.parametrize("settings", [{}, {"num_beams": 4, "length_penalty": 0.6}])
def test_generation_begins_with_bos_and_ends_with_eos(
    model: Any, tiny: Any, vocabulary: Any, settings: dict[str, Any]
) -> None:
    given = batch(tiny, vocabulary)
    ids = model.generate(
        given["input_ids"], attention_mask=given["attention_mask"], max_length=12, **settings
    )
    assert (ids[:, 0] == vocabulary.bos_token_id).all() and ids.shape[1] <= 12
    assert all(vocabulary.eos_token_id in row[1:] for row in ids.tolist())


def test_generation_ends_where_positions_do(vocabulary: Any) -> None:
    short = transformer("tiny", vocabulary, max_positions=8).eval()
    ids = short.generate(torch.tensor([[9, 8, 7, 6, 5, 4, 9, 1]]), num_beams=2)
    assert ids.shape[1] <= 8


def test_what_is_saved_loads_with_its_tokenizer(
    model: Any, tiny: Any, vocabulary: Any, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path)
    vocabulary.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    text = "Hello </s> World"
    assert tokenizer(text)["input_ids"] == vocabulary(text)["input_ids"]
    assert sorted(tokenizer(text)) == ["attention_mask", "input_ids"]
    given = batch(tiny, vocabulary)
    assert torch.equal(model(**given).logits, loaded(**given).logits)
    assert loaded.generation_config.decoder_start_token_id == vocabulary.bos_token_id


def test_it_learns_to_copy(vocabulary: Any) -> None:
    """A model that learns nothing, or that sees its own labels, fails here: it copies by generating."""
    torch.manual_seed(0)
    model = transformer("tiny", vocabulary, dropout=0.0, max_positions=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ends = torch.ones(64, 1, dtype=torch.int64)
    for step in range(250):
        tokens = torch.cat([torch.randint(4, 12, (64, 3)), ends], dim=1)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 50)
        optimizer.step()
        optimizer.zero_grad()
    held_out = torch.cat([torch.randint(4, 12, (16, 3)), ends[:16]], dim=1)
    copied = model.eval().generate(held_out, num_beams=4)
    assert (copied[:, 1:5] == held_out).all(dim=1).float().mean() > 0.8
