"""What the two modules for `evaluate` share: sentences go in, are checked, and are gathered on process 0."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hf_decentral.metrics import pairs


class TextPairs(evaluate.Metric):  # type: ignore[misc]
    """A metric of `evaluate` over predictions and references, each reference a string or a list of strings.

    In a run of several processes make it on each with ``num_process``, ``process_id``, a common
    ``experiment_id`` and a ``cache_dir`` that all see. Every process calls ``compute`` (one without sentences
    with empty lists); process 0 gets the result and the others None.
    """

    description = citation = inputs = ""

    def _info(self) -> Any:
        texts = datasets.Value("string")
        return evaluate.MetricInfo(
            description=self.description,
            citation=self.citation,
            inputs_description=self.inputs,
            # Always lists, so that a process without sentences needs no example to know its columns.
            features=datasets.Features({"predictions": texts, "references": datasets.Sequence(texts)}),
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add sentences.

        Raises:
            DataError: unequal lengths or an entry that is no string; the index counts in this batch.
        """
        hypotheses, lists = pairs.checked(predictions, references)
        super().add_batch(predictions=hypotheses, references=lists, **kwargs)

    def add(self, *, prediction: Any = None, reference: Any = None, **kwargs: Any) -> None:
        """Add one sentence.

        Raises:
            DataError: an entry that is no string.
        """
        self.add_batch(predictions=[prediction], references=[reference], **kwargs)
