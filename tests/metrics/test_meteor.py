"""METEOR beside nltk called directly, and WordNet in all the places where it may lie."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from hf_decentral.errors import SettingsError
from hf_decentral.metrics import find_wordnet, meteor, wordnet
from tests.metrics import small_wordnet

GUIDE = "It is a guide to action which ensures that the military always obeys the commands of the party"
GUIDES = [
    "It is a guide to action that ensures that the military will forever heed Party commands",
    "It is the guiding principle which guarantees the military forces always being under the command of the "
    "Party",
    "It is the practical guide for the army always to heed the directions of the party",
]


@pytest.fixture(autouse=True)
def only_what_a_test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No WordNet of this machine, and none of an earlier test."""
    import nltk.data

    monkeypatch.delenv("NLTK_DATA", raising=False)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nowhere")])
    wordnet._read.cache_clear()


def test_values_that_nltk_publishes_and_synonyms():
    place = small_wordnet.real()
    for prediction, references, published in (
        (GUIDE, GUIDES[:1], 0.6944),
        (GUIDE, GUIDES, 0.6944),
        ("non matching hypothesis", ["this is a cat"], 0.0),
        ("on the mat sat the cat", ["The cat sat on the mat"], 0.5),
        ("The cat was sat on the mat", ["The cat sat on the mat"], 0.9654),
    ):
        assert round(meteor([prediction], [references], wordnet=place), 4) == published
    assert meteor(["auto"], ["car"], wordnet=place) > 0
    assert meteor(["zebra"], ["car"], wordnet=place) == 0
    # nltk hands stems to WordNet, and 'automobil' is no word; our score is nltk's.
    assert meteor(["automobile"], ["car"], wordnet=place) == 0


@pytest.mark.filterwarnings("ignore:The multilingual functions are not available")
def test_it_is_the_mean_of_nltks_sentences(tmp_path):
    small_wordnet.unpacked(tmp_path)
    predictions = ["The autos stopped, didn't they?", "Nothing matches here.", GUIDE, "", "An auto. Stop"]
    references = [
        ["The car has stopped, has it not?"],
        ["Quite other words"],
        GUIDES,
        ["No"],
        ["A car. Stops"],
    ]
    scored = meteor(predictions, references, wordnet=tmp_path)
    import nltk.data
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.corpus.util import LazyCorpusLoader
    from nltk.tokenize import NLTKWordTokenizer
    from nltk.translate.meteor_score import meteor_score

    # As in nltk.corpus, where it stays loaded from wherever it was found first.
    nltk.data.path.append(str(tmp_path))
    direct = LazyCorpusLoader("wordnet", WordNetCorpusReader, None)
    cut = NLTKWordTokenizer().tokenize
    expected = [
        meteor_score([cut(text) for text in texts], cut(prediction), wordnet=direct)
        for prediction, texts in zip(predictions, references, strict=True)
    ]
    assert scored == pytest.approx(sum(expected) / 5, abs=1e-12)
    assert expected[0] > 0 and expected[3] == 0


def test_the_best_of_several_references_and_one_score_whatever_the_shards(tmp_path):
    place = small_wordnet.unpacked(tmp_path)
    assert meteor(["a b c"], [["x y z", "a b c", "a c"]], wordnet=place) == meteor(
        ["a b c"], ["a b c"], wordnet=place
    )
    predictions = [f"{GUIDE} {k} {'the ' * k}" for k in range(13)]
    references = [GUIDES[: 1 + k % 3] for k in range(13)]
    whole = meteor(predictions, references, wordnet=place)
    for workers in (2, 3):
        order = [k for worker in range(workers) for k in range(worker, 13, workers)]
        shards = meteor([predictions[k] for k in order], [references[k] for k in order], wordnet=place)
        assert shards == whole


def test_empty_sentences_and_source_equal_to_target(tmp_path):
    place = small_wordnet.unpacked(tmp_path)
    for prediction, reference in (("", "a b"), ("a b", ""), ("", ""), (" ", "a")):
        assert meteor([prediction], [reference], wordnet=place) == 0
    # Six words in one chunk: 1 - 0.5 (1/6)^3.
    assert meteor([GUIDE[:22]], [GUIDE[:22].upper()], wordnet=place) == pytest.approx(1 - 0.5 / 6**3)


def test_the_weights(tmp_path):
    place = small_wordnet.unpacked(tmp_path)
    # One match: precision 1/2, recall 1, one chunk.
    assert meteor(["a x"], ["a"], gamma=0, wordnet=place) == pytest.approx(0.5 / (0.9 * 0.5 + 0.1))
    assert meteor(["a x"], ["a"], gamma=0, alpha=0, wordnet=place) == pytest.approx(0.5)
    assert meteor(["a x"], ["a"], alpha=0, gamma=0.5, wordnet=place) == pytest.approx(0.25)
    for wrong in ({"alpha": -0.1}, {"alpha": float("nan")}, {"gamma": 1.5}, {"beta": -1.0}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            meteor(["a"], ["a"], wordnet=place, **wrong)


@pytest.mark.parametrize("form", ["unpacked", "packed"])
@pytest.mark.parametrize("named", ["nltk_data", "corpora", "itself"])
def test_wordnet_is_found_where_it_is_named(tmp_path, form, named):
    lies = getattr(small_wordnet, form)(tmp_path / "nltk_data")
    place = {"nltk_data": tmp_path / "nltk_data", "corpora": lies.parent, "itself": lies}[named]
    assert find_wordnet(place) == find_wordnet(str(place)) == lies.resolve()
    assert meteor(["auto"], ["car"], wordnet=place) > 0
    assert meteor(["zebra"], ["car"], wordnet=place) == 0


def test_the_real_one_packed_and_unpacked(tmp_path):
    packed = small_wordnet.real()
    scored = meteor([GUIDE, "auto"], [GUIDES, "car"], wordnet=packed)
    with zipfile.ZipFile(packed / "corpora" / "wordnet.zip") as archive:
        archive.extractall(tmp_path / "corpora")
    assert meteor([GUIDE, "auto"], [GUIDES, "car"], wordnet=tmp_path) == scored


def test_the_environment_and_nltks_path(tmp_path, monkeypatch):
    import nltk.data

    assert find_wordnet() is None
    first, second = small_wordnet.packed(tmp_path / "one"), small_wordnet.unpacked(tmp_path / "two")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "two")])
    assert find_wordnet() == second.resolve()
    monkeypatch.setenv("NLTK_DATA", f"{tmp_path / 'nowhere'}:{tmp_path / 'one'}")
    assert find_wordnet() == first.resolve()
    assert meteor(["auto"], ["car"]) > 0
    # What an argument names is not replaced by another one.
    assert find_wordnet(tmp_path / "nowhere") is None


def test_without_wordnet_the_error_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "mine"))
    with pytest.raises(SettingsError) as told:
        meteor(["a"], ["a"])
    for word in (tmp_path / "mine", tmp_path / "nowhere", "python -m nltk.downloader wordnet", "NLTK_DATA"):
        assert str(word) in str(told.value)
    with pytest.raises(SettingsError, match="elsewhere"):
        meteor(["a"], ["a"], wordnet=tmp_path / "elsewhere")


@pytest.mark.parametrize("form", ["unpacked", "packed"])
def test_a_damaged_wordnet_is_named(tmp_path, form):
    lies = getattr(small_wordnet, form)(tmp_path)
    if lies.is_dir():
        (lies / "data.noun").unlink()
    else:
        lies.write_bytes(lies.read_bytes()[:-40])
    assert find_wordnet(tmp_path) is None
    with pytest.raises(SettingsError, match=rf"{lies} \(damaged or incomplete\)"):
        meteor(["a"], ["a"], wordnet=tmp_path)


def test_what_nltk_cannot_or_will_not_read_is_said(tmp_path):
    lies = small_wordnet.unpacked(tmp_path)
    for wrong in ("no such form\n", "07\tnoun.artifact\t1\n"):
        (lies / "lexnames").write_text(wrong)
        with pytest.raises(SettingsError, match=r"cannot be read \((.|\n)*Fetch it again"):
            meteor(["a"], ["a"], wordnet=tmp_path)
    (lies / "lexnames").write_text(small_wordnet.FILES["lexnames"])
    assert meteor(["auto"], ["car"], wordnet=tmp_path) > 0
    wordnet._read.cache_clear()
    (lies / "lexnames").chmod(0o666)  # what others may write, nltk does not trust (since 3.10)
    with pytest.raises(SettingsError, match=r"cannot be read(.|\n)*chmod go-w"):
        meteor(["auto"], ["car"], wordnet=tmp_path)


def test_without_nltk(monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk", None)
    for call in (lambda: meteor(["a"], ["a"]), find_wordnet):
        with pytest.raises(
            SettingsError, match=r"package nltk is not installed(.|\n)*hf-decentral\[metrics\]"
        ):
            call()
