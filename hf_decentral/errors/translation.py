"""Errors about sentence pairs, their languages, batches of them, and averages of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hf_decentral.errors.base import CheckpointError, DataError, SettingsError, sentence

FORMS = 'a .jsonl file (or .json, also .gz) of rows like {"translation": {"en": "…", "de": "…"}}'
PLACES = "pairs come from files (--train_file and its like), from --dataset_name, or from the package"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def missing_file(path: Path) -> DataError:
    """A path to no file."""
    return DataError(
        sentence(f"there is no file {str(path)!r}", f"expected {FORMS}", "check the path, from where you run")
    )


def unknown_suffix(path: Path) -> DataError:
    """A file of a form that is not read."""
    return DataError(
        sentence(
            f"{str(path)!r} has no known ending",
            f"expected {FORMS}",
            "convert the file; parquet and csv load through --dataset_name with the folder that holds them",
        )
    )


def no_pairs(name: str) -> DataError:
    """A file or a split without one row."""
    return DataError(sentence(f"{name!r} holds no pairs", "expected at least one row", "give another one"))


def only_blank(name: str, rows: int) -> DataError:
    """Training rows that all lack one of the two sides."""
    return DataError(
        sentence(
            f"all {rows} training rows of {name!r} are blank on one side",
            "expected pairs of two sentences",
            "look at the file, and whether the languages or columns are the ones you mean",
        )
    )


def missing_column(name: str, column: str, columns: Sequence[str]) -> DataError:
    """Rows without the column that should hold one side."""
    return DataError(
        sentence(
            f"{name} has no column {column!r}",
            f"its columns are {_listed(columns)}",
            "name the two that hold the sentences with --source_column and --target_column, "
            "or keep both in a column 'translation', by language",
        )
    )


def missing_language(name: str, language: str, languages: Sequence[str]) -> DataError:
    """A translation column without the language that was asked for."""
    return DataError(
        sentence(
            f"{name} has no language {language!r}",
            f"its languages are {_listed(languages)}",
            "give two of them as --source_lang and --target_lang",
        )
    )


def not_text(name: str, column: str, kind: str) -> DataError:
    """A side that is no string."""
    return DataError(
        sentence(
            f"{column!r} of {name} holds {kind}",
            "expected a sentence, or null for a blank one",
            "mend the row, or name other columns with --source_column and --target_column",
        )
    )


def no_such_pair(source_lang: str, target_lang: str, pairs: Sequence[str]) -> DataError:
    """A pair of languages that the package ships no text for."""
    return DataError(
        sentence(
            f"no file was given, and no pairs from {source_lang!r} to {target_lang!r} come with the package",
            f"it has {', '.join(pairs)}, in both directions",
            "give your own with --train_file, or --dataset_name",
        )
    )


def two_places(dataset: str) -> SettingsError:
    """Files and a dataset, both given."""
    return SettingsError(
        sentence(f"both files and the dataset {dataset!r} were given", PLACES, "leave one of them out")
    )


def one_column(given: str) -> SettingsError:
    """A column for one side only."""
    return SettingsError(
        sentence(
            f"only one column was named, {given!r}",
            "expected none, or one for the source and one for the target",
            "give both --source_column and --target_column",
        )
    )


def not_loadable(name: str, cause: str) -> DataError:
    """A dataset that `datasets` could not load."""
    return DataError(
        sentence(
            f"dataset {name!r} cannot be loaded ({cause})",
            "--dataset_name is a name on the hub, or a folder of .jsonl or .parquet files",
            "check the name, --dataset_config_name (wmt14 has de-en, fr-en, …) and the network; "
            "a dataset that was downloaded before loads with HF_HUB_OFFLINE=1",
        )
    )


def unknown_language(tokenizer: str, language: str, near: Sequence[str], known: int) -> SettingsError:
    """A language that a multilingual tokenizer has no code for."""
    advice = f"near ones are {', '.join(near)}" if near else "look at the model's card for its languages"
    return SettingsError(
        sentence(
            f"{tokenizer} does not know the language {language!r}",
            f"expected one of its {known} language codes",
            advice,
        )
    )


def no_model(name: str, cause: str) -> SettingsError:
    """A checkpoint to fine-tune that transformers could not load."""
    return SettingsError(
        sentence(
            f"no translation model can be loaded from {name!r} ({cause})",
            "expected a folder with a seq2seq model and its tokenizer, or the name of one on the hub",
            "check the name and the network; the tokenizers of Marian, T5 and mBART may need the package "
            "sentencepiece",
        )
    )


def too_few_pairs(pairs: int, workers: int, left_out: int) -> DataError:
    """Not even one pair for each worker."""
    longer = f" ({left_out} longer ones were left out)" if left_out else ""
    return DataError(
        sentence(
            f"there {'is' if pairs == 1 else 'are'} {pairs} training pair{'' if pairs == 1 else 's'}{longer}",
            f"each of {workers} workers takes at least one in every step",
            "give more pairs, or start fewer workers",
        )
    )


def nothing_to_average() -> CheckpointError:
    """An average over no checkpoint."""
    return CheckpointError(
        sentence(
            "no checkpoint was given to average",
            "expected at least one folder",
            "save some while training, with --save_steps and a --save_total_limit that keeps them",
        )
    )


def no_weights(folder: Path, cause: str) -> CheckpointError:
    """A folder whose weights are not there, or cannot be read."""
    return CheckpointError(
        sentence(
            f"the weights in {str(folder)!r} cannot be averaged ({cause})",
            "expected model.safetensors, or model.safetensors.index.json and the parts that it names",
            "give a folder that save_pretrained or the Trainer wrote, or leave it out of the average",
        )
    )


def other_weights(folder: Path, first: Path, names: Sequence[str]) -> CheckpointError:
    """Checkpoints of two models; ``names``: weights that one lacks, or that have another shape."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return CheckpointError(
        sentence(
            f"{str(folder)!r} and {str(first)!r} differ in {', '.join(names[:3])}{more}",
            "only checkpoints of one model can be averaged",
            "give checkpoints of one run",
        )
    )
