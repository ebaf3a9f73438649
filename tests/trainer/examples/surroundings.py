"""Says where it finds itself and what it is given for the names of transformers; ends as it is told to."""

import json
import sys

import transformers
from transformers import Trainer, TrainingArguments
from transformers.trainer import Trainer as OfModule
from transformers.trainer_seq2seq import Seq2SeqTrainer
from transformers.training_args import TrainingArguments as ArgumentsOfModule
from transformers.training_args_seq2seq import Seq2SeqTrainingArguments
from transformers.utils import direct_transformers_import

if __name__ == "__main__":
    # As some modules of transformers do while they are imported: a new module stands where the old one stood.
    again = direct_transformers_import(transformers.__path__[0])
    names = [
        Trainer, OfModule, transformers.Trainer, again.Trainer, TrainingArguments, ArgumentsOfModule,
        transformers.TrainingArguments, Seq2SeqTrainer, transformers.Seq2SeqTrainer, again.Seq2SeqTrainer,
        Seq2SeqTrainingArguments, transformers.Seq2SeqTrainingArguments,
    ]  # fmt: skip
    here = sys.modules["__main__"]
    print(
        json.dumps(
            {
                "names": [name.__qualname__ for name in names],
                "argv": sys.argv,
                "path": sys.path[0],
                "file": __file__,
                "name": __name__,
                "package": __package__,
                "main": here.names is names and here.__spec__ is not None,
            }
        )
    )
    if "--interrupt" in sys.argv:
        raise KeyboardInterrupt
    sys.exit(3)
