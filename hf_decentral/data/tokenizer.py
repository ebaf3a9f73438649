"""Tokenizers: GPT-2's by name, a local folder, or a small byte-level BPE trained on the text at hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_decentral.data import cache
from hf_decentral.data.corpus import Corpus
from hf_decentral.errors import data as errors

END_OF_TEXT = "<|endoftext|>"
# 256 bytes and end-of-text, and what two bytes of a token file can number.
SMALLEST, LARGEST = 257, 65_536
# A BPE of some thousand merges no longer changes after this much text.
TRAINING_CHARACTERS = 50_000_000


def load(name: str, corpus: Corpus, fraction: float, cache_dir: str | None = None) -> Any:
    """Load, or train and cache, a tokenizer of transformers with an end-of-text token.

    Args:
        name: a name on the hub (``gpt2``), a folder, or ``bpe:SIZE``.
        corpus: the text that ``bpe:SIZE`` is trained on (its training documents only).
        fraction: share of the documents that is held out for validation.
        cache_dir: where to keep trained tokenizers.

    Raises:
        DataError: it cannot be loaded, has no end-of-text, or a size that cannot be.
    """
    if name.startswith("bpe:"):
        tokenizer = _from_folder(_trained(name, corpus, fraction, cache_dir))
    else:
        tokenizer = _from_folder(name)
    if tokenizer.eos_token_id is None:
        raise errors.no_end_of_text(name)
    tokenizer.model_max_length = int(1e30)  # documents are cut into contexts after they are tokenized
    return tokenizer


def _from_folder(name: str | Path) -> Any:
    import transformers

    folder = Path(name).expanduser()
    try:
        if (folder / "vocab.json").exists() and not (folder / "tokenizer_config.json").exists():
            # GPT-2's own two files, without the file that tells AutoTokenizer what they are.
            return transformers.GPT2Tokenizer.from_pretrained(str(folder))
        return transformers.AutoTokenizer.from_pretrained(str(folder) if folder.exists() else str(name))
    except (OSError, ValueError, KeyError, ImportError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise errors.no_tokenizer(str(name), cause) from error


def _trained(name: str, corpus: Corpus, fraction: float, cache_dir: str | None) -> Path:
    try:
        size = int(name.removeprefix("bpe:"))
    except ValueError:
        size = 0
    if not SMALLEST <= size <= LARGEST:
        raise errors.tokenizer_size(name, SMALLEST, LARGEST)
    key = cache.key(form=1, size=size, text=corpus.fingerprint, fraction=fraction)
    return cache.once(
        cache.root(cache_dir) / "tokenizers" / key,
        lambda folder: _train(size, corpus, fraction, folder),
        lambda folder: (folder / "tokenizer_config.json").exists(),
    )


def _train(size: int, corpus: Corpus, fraction: float, folder: Path) -> None:
    import tokenizers
    import transformers

    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_training_texts(corpus, fraction), trainer)
    make: Any = transformers.PreTrainedTokenizerFast
    fast = make(tokenizer_object=bpe, eos_token=END_OF_TEXT, bos_token=END_OF_TEXT, unk_token=END_OF_TEXT)
    fast.save_pretrained(str(folder))


def _training_texts(corpus: Corpus, fraction: float) -> Iterator[str]:
    read = 0
    for _, text in corpus.train(fraction):
        read += len(text)
        yield text
        if read >= TRAINING_CHARACTERS:
            return
    if read == 0:
        raise errors.empty(corpus.name)
