"""BLEU as a module of `evaluate`; load it with ``evaluate.load(hf_decentral.metrics.path("bleu"))``."""

from __future__ import annotations

from typing import Any

from hf_decentral.metrics import bleu, gathering


class DecentralBleu(gathering.TextPairs):
    """Corpus BLEU; ``compute`` also takes ``target_lang``, ``tokenize`` and ``lowercase``."""

    description = "Corpus BLEU by sacrebleu, with the tokenizer of the target language."
    citation = "Matt Post, A Call for Clarity in Reporting BLEU Scores, WMT 2018."
    inputs = """
Options of compute: target_lang, tokenize, lowercase, as in hf_decentral.metrics.bleu.
The result has score (0 to 100) and signature, and counts, totals, precisions, bp, sys_len and ref_len.
"""

    def _compute(self, *, predictions: Any, references: Any, **options: Any) -> dict[str, Any]:
        scored = bleu(predictions, references, **options)
        return {
            "score": scored.score,
            "signature": scored.signature,
            "counts": list(scored.counts),
            "totals": list(scored.totals),
            "precisions": list(scored.precisions),
            "bp": scored.brevity_penalty,
            "sys_len": scored.predicted_tokens,
            "ref_len": scored.reference_tokens,
        }
