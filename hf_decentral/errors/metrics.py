"""Errors about BLEU and METEOR: sentences that cannot be scored, and what is not on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hf_decentral.errors.base import DataError, SettingsError, sentence

SHAPE = "one entry for each prediction: a string, or a list of strings where there are several references"


def missing_package(package: str, needs: str) -> SettingsError:
    """A library of the extra that is not installed; ``needs``: what is computed with it."""
    return SettingsError(
        sentence(
            f"the package {package} is not installed",
            f"{needs} is computed with it",
            "pip install 'hf-decentral[metrics]'",
        )
    )


def not_a_list(what: str, given: object) -> DataError:
    """One string, or something that is no sequence, where a list of sentences belongs."""
    return DataError(
        sentence(
            f"the {what} are a {type(given).__name__}",
            "expected a list with one entry for each sentence",
            "put a single sentence into a list: [sentence]",
        )
    )


def unequal(predictions: int, references: int) -> DataError:
    """Not one entry of references for each prediction."""
    return DataError(
        sentence(
            f"there are {predictions} predictions and {references} entries of references",
            f"references hold {SHAPE}",
            "score what belongs together; lists of whole reference files must be transposed first",
        )
    )


def no_sentences() -> DataError:
    """Two empty lists: the score of nothing is not defined."""
    return DataError(
        sentence(
            "there is no sentence to score",
            "expected at least one prediction and its reference",
            "check the test set, and what generation returned",
        )
    )


def not_text(where: str, value: object) -> DataError:
    """An entry that is no string, such as None or the NaN of an empty table cell."""
    return DataError(
        sentence(
            f"{where} is {str(value)[:40]!r}, a {type(value).__name__}",
            f"a prediction is a string, and references hold {SHAPE}",
            "leave this sentence out, or give '' for an empty one",
        )
    )


def no_reference(where: str) -> DataError:
    """An empty list of references."""
    return DataError(
        sentence(
            f"{where} holds no reference",
            f"references hold {SHAPE}",
            "leave this sentence out on both sides; an empty reference is ''",
        )
    )


def unusable_tokenizer(name: str, cause: str) -> SettingsError:
    """A tokenizer of sacrebleu that needs what is not installed."""
    return SettingsError(
        sentence(
            f"the tokenizer {name!r} of BLEU cannot be used ({cause})",
            "ja-mecab needs sacrebleu[ja], ko-mecab needs sacrebleu[ko], spm and flores need sentencepiece",
            "install what it needs, or choose tokenize='char', which needs nothing",
        )
    )


def tokenizer_not_here(name: str, path: Path) -> SettingsError:
    """A tokenizer whose model sacrebleu would download."""
    return SettingsError(
        sentence(
            f"the tokenizer {name!r} of BLEU needs the file {str(path)!r}, which does not exist",
            "nothing is downloaded while a run computes its scores",
            f"run `sacrebleu` once with `--tokenize {name}` on a machine with a network, which fetches it, "
            "or choose tokenize='char'",
        )
    )


def no_wordnet(looked: Sequence[str]) -> SettingsError:
    """METEOR was asked for, and WordNet is nowhere; ``looked``: the places, with what is wrong there."""
    return SettingsError(
        sentence(
            f"METEOR needs WordNet, which is not in {', '.join(looked) or 'any folder'}",
            "expected corpora/wordnet or corpora/wordnet.zip in one of these; nothing is downloaded",
            "run `python -m nltk.downloader wordnet` where there is a network, or set NLTK_DATA (or the "
            "argument wordnet) to the folder nltk_data or to wordnet.zip",
        )
    )


def unreadable_wordnet(path: Path, cause: str) -> SettingsError:
    """WordNet is there, and nltk cannot or will not read it."""
    return SettingsError(
        sentence(
            f"WordNet in {str(path)!r} cannot be read ({cause})",
            "expected the files of the nltk package 'wordnet', which only their owner may write",
            "fetch it again with `python -m nltk.downloader wordnet`, or run chmod go-w on it",
        )
    )
