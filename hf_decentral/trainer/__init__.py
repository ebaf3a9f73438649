"""The Trainer of transformers with workers that average with neighbours."""

from __future__ import annotations

from hf_decentral.trainer.arguments import (
    DecentralizedSeq2SeqTrainingArguments,
    DecentralizedTrainingArguments,
)
from hf_decentral.trainer.trainers import DecentralizedSeq2SeqTrainer, DecentralizedTrainer

__all__ = [
    "DecentralizedSeq2SeqTrainer",
    "DecentralizedSeq2SeqTrainingArguments",
    "DecentralizedTrainer",
    "DecentralizedTrainingArguments",
]
