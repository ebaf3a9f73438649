"""BLEU and METEOR as modules of `evaluate`: offline, from a path, by import, in one process and in three."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hf_decentral.errors import SettingsError
from hf_decentral.metrics import bleu, meteor, path
from tests.metrics import small_wordnet

PREDICTIONS = [
    "the auto stopped on the mat",
    "it rains in the north today",
    "",
    "we go home now",
    "a b c d e",
]
REFERENCES = [
    ["the car stopped on the mat", "the car did stop"],
    "it rains up north today",
    ["nothing at all"],
    "we go home now",
    "a b c d e f",
]

# One fresh process for all: importing `evaluate` takes seconds. It forks the three of the distributed part,
# the last of which has no sentence.
SCRIPT = """
import json, multiprocessing, sys

def no_network(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise RuntimeError(f"{event} {arguments}")

sys.addaudithook(no_network)
import evaluate
from hf_decentral.metrics import path
from hf_decentral.metrics.decentral_bleu import DecentralBleu

given = json.load(open(sys.argv[1]))
options = {"bleu": {"target_lang": "de", "lowercase": True}, "meteor": {"wordnet": given["wordnet"]}}
both = {"predictions": given["predictions"], "references": given["references"]}
result = {"names": {}}

for name in options:
    metric = evaluate.load(path(name), cache_dir=given["cache"])
    result["names"][name] = metric.name
    result[name] = metric.compute(**both, **options[name])

metric = DecentralBleu(cache_dir=given["cache"])
metric.add(prediction=both["predictions"][0], reference=both["references"][0])
metric.add_batch(predictions=both["predictions"][1:], references=both["references"][1:])
result["imported"] = metric.compute(**options["bleu"])

def worker(rank, queue):
    last = rank == 2
    mine = {key: [] if last else values[rank::2] for key, values in both.items()}
    told = {}
    for name in options:
        metric = evaluate.load(
            path(name), num_process=3, process_id=rank, experiment_id="three", cache_dir=given["cache"]
        )
        told[name] = metric.compute(**mine, **options[name])
    queue.put((rank, told))

forks = multiprocessing.get_context("fork")
queue = forks.Queue()
processes = [forks.Process(target=worker, args=(rank, queue)) for rank in range(3)]
for process in processes:
    process.start()
result["three"] = dict(queue.get(timeout=120) for _ in processes)
for process in processes:
    process.join(60)

for name, wrong in (("null", [None]), ("unequal", [])):
    try:
        DecentralBleu(cache_dir=given["cache"]).compute(predictions=wrong, references=["a"])
    except Exception as error:
        result[name] = [type(error).__name__, str(error)]
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script found."""
    folder = tmp_path_factory.mktemp("evaluate")
    place = small_wordnet.packed(folder / "nltk_data")
    given = {
        "predictions": PREDICTIONS,
        "references": REFERENCES,
        "wordnet": str(place),
        "cache": str(folder / "cache"),
    }
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "script.py").write_text(SCRIPT)
    # From a strange folder, so that nothing is found by its name in the current one.
    run = subprocess.run(
        [sys.executable, "script.py", "given.json"],
        cwd=folder,
        env={
            **os.environ,
            "HF_EVALUATE_OFFLINE": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "home"),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    found["place"] = place
    return found


def test_loaded_from_a_path_they_are_our_functions(told):
    scored = bleu(PREDICTIONS, REFERENCES, target_lang="de", lowercase=True)
    assert told["bleu"]["score"] == scored.score > 1
    assert told["bleu"]["signature"] == scored.signature
    assert told["bleu"]["counts"] == list(scored.counts)
    assert told["meteor"] == {"meteor": meteor(PREDICTIONS, REFERENCES, wordnet=told["place"])}
    assert told["names"] == {"bleu": "decentral_bleu", "meteor": "decentral_meteor"}


def test_imported_and_fed_in_batches_it_is_the_same(told):
    assert told["imported"] == told["bleu"]


def test_three_processes_one_without_sentences_give_the_score_of_one(told):
    assert told["three"]["0"] == {"bleu": told["bleu"], "meteor": told["meteor"]}
    assert told["three"]["1"] == told["three"]["2"] == {"bleu": None, "meteor": None}


def test_wrong_sentences_are_named(told):
    assert told["null"][0] == told["unequal"][0] == "DataError"
    assert "Predictions[0] is 'None'" in told["null"][1] or "predictions[0] is 'None'" in told["null"][1]
    assert "0 predictions and 1 entries" in told["unequal"][1]


def test_the_functions_need_neither_evaluate_nor_torch(tmp_path):
    place = small_wordnet.unpacked(tmp_path)
    ask = (
        "import sys; sys.modules['evaluate'] = None; sys.modules['torch'] = None\n"
        "from hf_decentral.metrics import bleu, meteor\n"
        f"print(bleu(['a b c d'], ['a b c d']).score, meteor(['auto'], ['car'], wordnet={str(place)!r}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    score, mean = map(float, run.stdout.split())
    assert score == pytest.approx(100) and mean == pytest.approx(0.5)


def test_the_files_for_evaluate():
    assert Path(path("bleu")).is_file() and Path(path("meteor")).is_file()
    with pytest.raises(SettingsError, match="mean 'bleu'"):
        path("blue")
