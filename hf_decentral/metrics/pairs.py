"""Predictions and their references, brought to one shape and checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from hf_decentral.errors import metrics as errors

References = Sequence[str | Sequence[str]]


def checked(predictions: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    """Lists of equal length, and a list of references for every prediction.

    Args:
        predictions: N strings.
        references: N entries, each a string or a sequence of strings; their numbers may differ.

    Raises:
        DataError: unequal lengths, an entry that is no string, an entry without a reference.
    """
    hypotheses = _listed("predictions", predictions)
    entries = _listed("references", references)
    if len(hypotheses) != len(entries):
        raise errors.unequal(len(hypotheses), len(entries))
    for index, text in enumerate(hypotheses):
        if not isinstance(text, str):
            raise errors.not_text(f"predictions[{index}]", text)
    return hypotheses, [_references(f"references[{index}]", entry) for index, entry in enumerate(entries)]


def some(predictions: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    """The same, and at least one sentence.

    Raises:
        DataError: as above, or no sentence at all.
    """
    hypotheses, lists = checked(predictions, references)
    if not hypotheses:
        raise errors.no_sentences()
    return hypotheses, lists


def _references(where: str, entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    if not _is_list(entry):
        raise errors.not_text(where, entry)
    texts = list(entry)
    if not texts:
        raise errors.no_reference(where)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise errors.not_text(f"{where}[{index}]", text)
    return texts


def _listed(what: str, given: Any) -> list[Any]:
    if not _is_list(given):
        raise errors.not_a_list(what, given)
    return list(given)


def _is_list(given: Any) -> bool:
    # Columns of `datasets` and arrays are no `Sequence`; what has no order cannot be paired.
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | Set)
