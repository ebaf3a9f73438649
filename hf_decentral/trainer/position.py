"""Where in a stream a checkpoint was taken.

The Trainer finds its place again from the number of steps and the steps of an epoch. Data of unknown length
has no such number: the Trainer then takes all steps for those of a first epoch that never ends, and a run
that stopped in a later one would read other rows than the one that went on.
"""

from __future__ import annotations

from pathlib import Path

from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME


def of(checkpoint: str, accumulation: int, max_steps: int) -> tuple[int, int]:
    """The epoch in which a run goes on, and the batches of it that are done.

    Args:
        checkpoint: the folder of a run on data of unknown length.
        accumulation: batches of one step.
        max_steps: steps of the run that goes on.

    Returns:
        The epoch, from 0, and a number of batches of this worker. Where no step is left, all that an epoch
        may have.
    """
    state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
    if state.global_step >= max_steps:
        return 0, max_steps * accumulation
    # Trainer._run_epoch: epoch + batches / (max_steps * accumulation), of the run that was saved.
    epoch = int(state.epoch or 0)
    done = round(((state.epoch or 0) - epoch) * state.max_steps * accumulation)
    return epoch, done
