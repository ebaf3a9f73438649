"""METEOR as a module of `evaluate`; load it with ``evaluate.load(hf_decentral.metrics.path("meteor"))``."""

from __future__ import annotations

from typing import Any

from hf_decentral.metrics import gathering, meteor


class DecentralMeteor(gathering.TextPairs):
    """Mean METEOR; ``compute`` also takes ``alpha``, ``beta``, ``gamma`` and ``wordnet``."""

    description = "METEOR by nltk, with a WordNet that lies on this machine."
    citation = "Alon Lavie and Abhaya Agarwal, METEOR, WMT 2007."
    inputs = """
Options of compute: alpha, beta, gamma, wordnet, as in hf_decentral.metrics.meteor.
The result has meteor (0 to 1).
"""

    def _compute(self, *, predictions: Any, references: Any, **options: Any) -> dict[str, Any]:
        return {"meteor": meteor(predictions, references, **options)}
