"""The transformer of *Attention Is All You Need* (arXiv 1706.03762), as a MarianMTModel of transformers."""

from __future__ import annotations

from typing import Any, NamedTuple

from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.translation import no_model


class Size(NamedTuple):
    """A row of the table of sizes."""

    layers: int  # of the encoder, and as many of the decoder
    width: int
    heads: int
    feed_forward: int
    dropout: float


# base and big: table 3 of the paper, with its dropout for English-German. For English-French the paper trains
# big with 0.1. small and tiny are ours, for laptops and tests.
SIZES = {
    "tiny": Size(2, 128, 4, 512, 0.1),
    "small": Size(3, 256, 4, 1024, 0.1),
    "base": Size(6, 512, 8, 2048, 0.1),
    "big": Size(6, 1024, 16, 4096, 0.3),
}


def load_model(name: str) -> tuple[Any, Any]:
    """A seq2seq checkpoint and its tokenizer.

    Args:
        name: a folder, or a name on the hub.

    Raises:
        SettingsError: there is none, or a part of it is missing or damaged.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer  # heavy

    try:
        return AutoModelForSeq2SeqLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    except Exception as error:  # transformers raises whatever its parts raise; all of it means this
        cause = next(iter(str(error).strip().splitlines()), "no reason given")
        raise no_model(name, f"{type(error).__name__}: {cause}") from error


def transformer(size: str, tokenizer: Any, *, dropout: float | None = None, max_positions: int = 512) -> Any:
    """Build a transformer with random weights, drawn from torch's generator.

    Post-norm, ReLU, sinusoidal positions; one matrix is the embedding of both languages and, transposed, the
    output layer. What it saves loads with ``from_pretrained``. It is a plain `MarianMTModel`: labels padded
    with -100 are left out of its loss, and the decoder begins with bos (with pad, if there is no bos).

    Args:
        size: a name in `SIZES`.
        tokenizer: of `load_vocabulary`, or another one that has pad and eos.
        dropout: after each sublayer and on the embeddings; None takes the size's own.
        max_positions: most tokens of a source or a target.

    Raises:
        SettingsError: an unknown size, or a number out of range.
    """
    import transformers  # heavy

    if size not in SIZES:
        raise unknown_name("transformer size", size, SIZES)
    row = SIZES[size]
    rate = row.dropout if dropout is None else dropout
    if not 0 <= rate < 1:
        raise out_of_range("dropout", dropout, "from 0 to below 1", "the paper's is 0.1, or 0.3 for big")
    if max_positions < 2:
        raise out_of_range("max_positions", max_positions, "at least 2", "512 holds all but a few sentences")
    config = _config(row, rate, max_positions, tokenizer)
    model: Any = transformers.MarianMTModel(config)
    new_generation: Any = transformers.GenerationConfig
    model.generation_config = new_generation(max_length=max_positions, **_ids(tokenizer))
    return model


def _ids(tokenizer: Any) -> dict[str, int]:
    bos, pad, eos = tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id
    return {
        "pad_token_id": pad,
        "eos_token_id": eos,
        "bos_token_id": bos,
        "decoder_start_token_id": pad if bos is None else bos,
        "forced_eos_token_id": eos,
    }


def _config(row: Size, dropout: float, max_positions: int, tokenizer: Any) -> Any:
    import transformers

    new: Any = transformers.MarianConfig
    return new(
        vocab_size=len(tokenizer),
        d_model=row.width,
        encoder_layers=row.layers,
        decoder_layers=row.layers,
        encoder_attention_heads=row.heads,
        decoder_attention_heads=row.heads,
        encoder_ffn_dim=row.feed_forward,
        decoder_ffn_dim=row.feed_forward,
        dropout=dropout,
        activation_function="relu",
        max_position_embeddings=max_positions,
        scale_embedding=True,
        # Tried with tiny on 20,000 pairs for 600 steps: training loss 4.97, and 5.45 where matrices begin as
        # Glorot's and embeddings with variance 1 / width.
        init_std=0.02,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        static_position_embeddings=True,
        **_ids(tokenizer),
    )
