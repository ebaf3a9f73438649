"""BLEU and METEOR for translation, computed offline.

scored = bleu(predictions, references, target_lang="de_DE")     # scored.score 0 … 100, scored.signature
if find_wordnet():                                              # METEOR needs WordNet
    meteor(predictions, references)                             # 0 … 1
evaluate.load(path("bleu"))                                     # the same as a module of `evaluate`

Needs the extra ``hf-decentral[metrics]``; its libraries are imported when a score is computed.
"""

from __future__ import annotations

from pathlib import Path

from hf_decentral.errors import unknown_name
from hf_decentral.metrics.corpus_bleu import Bleu, bleu
from hf_decentral.metrics.mean_meteor import meteor
from hf_decentral.metrics.wordnet import find_wordnet

__all__ = ["Bleu", "bleu", "find_wordnet", "meteor", "path"]

_MODULES = {"bleu": "decentral_bleu.py", "meteor": "decentral_meteor.py"}


def path(metric: str) -> str:
    """The file to hand to ``evaluate.load``, which then looks for nothing on the hub.

    Args:
        metric: ``"bleu"`` or ``"meteor"``.

    Raises:
        SettingsError: another name.
    """
    if metric not in _MODULES:
        raise unknown_name("metric", metric, _MODULES)
    return str(Path(__file__).resolve().parent / _MODULES[metric])
