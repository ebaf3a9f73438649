"""Pairs to tokens: what a seq2seq model of transformers is trained on, and how long each pair is."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_decentral.data import cache
from hf_decentral.data.packing import tokenizer_mark
from hf_decentral.errors import out_of_range
from hf_decentral.translation.languages import set_languages

logger = logging.getLogger(__name__)


def encode(
    pairs: Any,
    tokenizer: Any,
    *,
    max_source_length: int = 256,
    max_target_length: int = 256,
    source_lang: str | None = None,
    target_lang: str | None = None,
    prefix: str = "",
) -> Any:
    """Tokenize pairs for a seq2seq model.

    Longer sentences are truncated, with eos at their end as in whole ones, and their number is logged. The
    result is kept in the cache of `datasets` where the pairs are.

    Args:
        pairs: one split of `load_pairs`.
        tokenizer: any seq2seq tokenizer of transformers; its languages are set in place.
        max_source_length, max_target_length: most tokens, eos included; at most the model's positions.
        source_lang, target_lang: for multilingual tokenizers (`set_languages`); others do not need them.
        prefix: put before each source, as T5 wants it: ``"translate English to German: "``.

    Returns:
        A dataset with ``input_ids``, ``attention_mask`` and ``labels``, not padded.

    Raises:
        SettingsError: an unknown language, or a length that leaves no room for a token.
    """
    if source_lang is not None and target_lang is not None:
        set_languages(tokenizer, source_lang, target_lang)
    longest = {"max_source_length": max_source_length, "max_target_length": max_target_length}
    least = tokenizer.num_special_tokens_to_add() + 1
    for name, length in longest.items():
        if length < least:
            raise out_of_range(name, length, f"at least {least}", "256 holds all but a few sentences")
    made = _mapped(pairs, tokenizer, prefix=prefix, **longest)
    cut = sum(
        int(batch["cut"].sum()) for batch in made.select_columns("cut").with_format("numpy").iter(10_000)
    )
    if cut:
        logger.warning(
            "%d of %d pairs are longer than %d source or %d target tokens and were truncated",
            cut,
            len(made),
            max_source_length,
            max_target_length,
        )
    return made.remove_columns("cut")


def _mapped(pairs: Any, tokenizer: Any, **settings: Any) -> Any:
    return pairs.map(
        _tokens,
        batched=True,
        remove_columns=pairs.column_names,
        fn_kwargs={"tokenizer": tokenizer, **settings},
        # A tokenizer does not pickle to the same bytes after it was used, so its text stands for it.
        new_fingerprint=cache.key(form=1, pairs=pairs._fingerprint, tokenizer=_mark(tokenizer), **settings),
    )


def lengths(encoded: Any) -> npt.NDArray[np.int64]:
    """Tokens of each pair of an encoded dataset: ``[N, 2]``, source and target, eos included."""
    import pyarrow.compute as compute  # type: ignore[import-untyped]

    counted = [
        np.stack([compute.list_value_length(batch[name]) for name in ("input_ids", "labels")], axis=1)
        for batch in encoded.select_columns(["input_ids", "labels"]).with_format("arrow").iter(10_000)
    ]
    return np.concatenate([np.zeros((0, 2), dtype=np.int64), *counted]).astype(np.int64)


def _mark(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:  # what the last call set; each call sets it anew
        backend.no_truncation()
        backend.no_padding()
    languages = getattr(tokenizer, "src_lang", None), getattr(tokenizer, "tgt_lang", None)
    return f"{tokenizer_mark(tokenizer)} {languages} {getattr(tokenizer, 'split_special_tokens', False)}"


def _tokens(
    batch: dict[str, list[str]],
    tokenizer: Any,
    prefix: str,
    max_source_length: int,
    max_target_length: int,
) -> dict[str, list[Any]]:
    sources = [prefix + text for text in batch["source"]]
    # Whole first, so that those that are too long can be counted.
    whole = tokenizer(sources, text_target=batch["target"], verbose=False)
    inputs, masks, labels = whole["input_ids"], whole["attention_mask"], whole["labels"]
    long = [row for row, tokens in enumerate(inputs) if len(tokens) > max_source_length]
    if long:
        short = tokenizer([sources[row] for row in long], truncation=True, max_length=max_source_length)
        for row, tokens, mask in zip(long, short["input_ids"], short["attention_mask"], strict=True):
            inputs[row], masks[row] = tokens, mask
    far = [row for row, tokens in enumerate(labels) if len(tokens) > max_target_length]
    if far:
        texts = [batch["target"][row] for row in far]
        short = tokenizer(text_target=texts, truncation=True, max_length=max_target_length)
        for row, tokens in zip(far, short["input_ids"], strict=True):
            labels[row] = tokens
    cut = {*long, *far}
    return {
        "input_ids": inputs,
        "attention_mask": masks,
        "labels": labels,
        "cut": [row in cut for row in range(len(inputs))],
    }
