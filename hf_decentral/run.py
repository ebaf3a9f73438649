"""``python -m hf_decentral.run SCRIPT ARGS``: scripts that import from transformers get our Trainers.

accelerate launch --config_file accelerate_configs/decentralized_aer.yaml -m hf_decentral.run \\
    train.py --optim accumadam --output_dir out
torchrun --nproc-per-node 4 -m hf_decentral.run train.py --optim adamw_torch --topology ring

``Trainer``, ``Seq2SeqTrainer`` and their arguments are exchanged in transformers before the script begins;
the script is not read or changed. Where neither a flag nor the launch names a topology, an optimizer of
transformers trains as it always did.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from hf_decentral.errors.ending import no_traceback
from hf_decentral.errors.launch import no_module, no_script

# The modules of transformers from which scripts import these names.
_STAND_IN = {
    "trainer": ("Trainer", "TrainingArguments"),
    "trainer_seq2seq": ("Seq2SeqTrainer", "Trainer"),
    "training_args": ("TrainingArguments",),
    "training_args_seq2seq": ("Seq2SeqTrainingArguments", "TrainingArguments"),
}


def tell() -> None:
    """Show what the package says of a run (how the workers average, who chose it), on standard error.

    A script that sets up logging of its own decides alone what is shown where.
    """
    ours, handler = logging.getLogger("hf_decentral"), logging.StreamHandler()
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)


def exchange() -> None:
    """Put our Trainers and arguments in the place of those of transformers, in this process."""
    ours = import_module("hf_decentral.trainer")
    for home, names in _STAND_IN.items():
        module = import_module(f"transformers.{home}")
        for name in names:
            setattr(module, name, getattr(ours, f"Decentralized{name}"))
    # Only now: importing a Trainer may put another module object in the place of transformers itself. One
    # that is put there later looks the names up in the modules above.
    package = sys.modules["transformers"]
    for name in {name for names in _STAND_IN.values() for name in names}:
        setattr(package, name, getattr(ours, f"Decentralized{name}"))


def run_script(path: Path, words: Sequence[str]) -> None:
    """Run a script with these arguments in this process, as ``python PATH WORDS`` would.

    Raises:
        LaunchError: there is no such file.
    """
    if not path.is_file():
        raise no_script(str(path), os.getcwd())
    exchange()
    sys.argv = [str(path), *words]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(path.resolve().parent)
    # runpy.run_path would give the file's name and sys.argv[0] one and the same path; python makes the first
    # one absolute.
    whole = str(path.absolute())
    loader = SourceFileLoader("__main__", whole)
    script = ModuleType("__main__")
    script.__file__, script.__loader__ = whole, loader
    sys.modules["__main__"] = script
    exec(loader.source_to_code(loader.get_data(whole), whole), vars(script))


def run_module(name: str, words: Sequence[str]) -> None:
    """Run a module with these arguments in this process, as ``python -m NAME WORDS`` would.

    Raises:
        LaunchError: there is no such module.
    """
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the package is there, and what it imports is not
        found = None
    if found is None:
        raise no_module(name, sys.path[0])
    exchange()
    sys.argv = [name, *words]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def main(words: Sequence[str] | None = None) -> None:
    """Run what the command line names; an error of this package is told without a traceback."""
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(
        prog="python -m hf_decentral.run",
        usage="%(prog)s [-h] [-m] SCRIPT [ARGS ...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-m", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("SCRIPT", help="a script that trains with transformers; what follows is its own")
    own = 1 + (list(words[:1]) == ["-m"])  # the script may have flags that are also written here
    chosen = parser.parse_args(words[:own])
    tell()
    with no_traceback():
        if chosen.m:
            run_module(chosen.SCRIPT, words[own:])
        else:
            run_script(Path(chosen.SCRIPT), words[own:])


if __name__ == "__main__":
    main()
