"""METEOR by nltk, the mean over sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from hf_decentral.errors import out_of_range
from hf_decentral.metrics import pairs
from hf_decentral.metrics import wordnet as wordnets


def meteor(
    predictions: Sequence[str],
    references: Sequence[str | Sequence[str]],
    *,
    alpha: float = 0.9,
    beta: float = 3.0,
    gamma: float = 0.5,
    wordnet: str | Path | None = None,
) -> float:
    """METEOR of a corpus, from 0 to 1: the mean of nltk's sentence scores, as in the metric of `evaluate`.

    Of several references of a sentence the best counts. A sentence without words on one side scores 0, also
    where both sides are empty. Words are cut by nltk's word tokenizer, line by line: it needs no data, and it
    parts only the last full stop of a line from its word. Case is folded. Stems and synonyms are English;
    other languages match by equal words and by what the English stemmer cuts off, and text without spaces
    (Chinese, Japanese) hardly at all. nltk looks for synonyms by stem: ``auto`` matches ``car``, and
    ``automobile``, whose stem is no word, does not.

    Args:
        predictions: N strings.
        references: N entries, each a string or a list of strings; their numbers may differ.
        alpha: weight of precision beside recall, 0 … 1.
        beta: exponent of the penalty for matches that are scattered, at least 0.
        gamma: the largest penalty, 0 … 1.
        wordnet: where WordNet lies, see :func:`~hf_decentral.metrics.find_wordnet`.

    Raises:
        DataError: lists of unequal length, no sentence, an entry that is no string (its index is named).
        SettingsError: nltk is not installed, WordNet is not found or cannot be read, a weight out of range.
    """
    _check(alpha, beta, gamma)
    hypotheses, lists = pairs.some(predictions, references)
    synonyms = wordnets.reader(wordnet)
    from nltk.tokenize import word_tokenize
    from nltk.translate.meteor_score import meteor_score

    scores = [
        meteor_score(
            [word_tokenize(text, preserve_line=True) for text in texts],
            word_tokenize(hypothesis, preserve_line=True),
            wordnet=synonyms,
            alpha=alpha,
            beta=beta,
            gamma=gamma,
        )
        for hypothesis, texts in zip(hypotheses, lists, strict=True)
    ]
    # An exact sum, so that the order in which workers' sentences were gathered does not show.
    return math.fsum(scores) / len(scores)


def _check(alpha: float, beta: float, gamma: float) -> None:
    for name, value in (("alpha", alpha), ("gamma", gamma)):
        if not 0.0 <= value <= 1.0:
            raise out_of_range(name, value, "a number from 0 to 1", "alpha=0.9 and gamma=0.5 are usual")
    if not 0.0 <= beta < math.inf:
        raise out_of_range("beta", beta, "a number of at least 0", "beta=3 is usual")
