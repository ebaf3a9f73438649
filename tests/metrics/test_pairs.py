"""What may be scored, and what is said about the rest; the same for BLEU and METEOR."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from hf_decentral.errors import DataError
from hf_decentral.metrics import bleu, meteor, pairs
from tests.metrics import small_wordnet


@pytest.fixture(params=["bleu", "meteor"])
def score(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    if request.param == "bleu":
        return bleu
    place = small_wordnet.unpacked(tmp_path)
    return lambda predictions, references: meteor(predictions, references, wordnet=place)


@pytest.mark.parametrize(
    ("predictions", "references", "said"),
    [
        (["a", None], ["a", "b"], r"predictions\[1\] is 'None', a NoneType"),
        (["a", float("nan")], ["a", "b"], r"predictions\[1\] is 'nan', a float"),
        (["a", "b"], ["a", float("nan")], r"references\[1\] is 'nan', a float"),
        (["a", "b"], [["a", None], "b"], r"references\[0\]\[1\] is 'None'"),
        (["a", "b"], ["a", []], r"references\[1\] holds no reference"),
        ([b"a"], ["a"], r"predictions\[0\] is .*a bytes"),
        (["a", "b", "c"], ["a", "b"], "3 predictions and 2 entries"),
        (["a", "b", "c"], [["a", "b", "c"]], "3 predictions and 1 entries(.|\n)*transposed"),
        ([], ["a"], "0 predictions and 1 entries"),
        ([], [], "no sentence to score"),
        ("a", ["a"], "predictions are a str"),
        (["a"], "a", "references are a str"),
        (["a"], None, "references are a NoneType"),
        (["a"], {"a": 1}, "references are a dict"),
    ],
)
def test_what_cannot_be_scored_is_named(score, predictions, references, said):
    with pytest.raises(DataError, match=said):
        score(predictions, references)


def test_columns_arrays_and_generators_are_lists(score):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"p": ["one two", "three"], "r": [["one two"], ["three", "four"]]})
    expected = score(["one two", "three"], [["one two"], ["three", "four"]])
    assert score(table["p"], table["r"]) == expected
    assert score(numpy.array(["one two", "three"]), (entry for entry in table["r"])) == expected


def test_every_prediction_gets_a_list_of_references():
    assert pairs.checked(["a", ""], ["b", ("c", "")]) == (["a", ""], [["b"], ["c", ""]])
    assert pairs.checked([], []) == ([], [])
