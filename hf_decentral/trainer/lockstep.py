"""What only one worker knows (a callback that wants to stop, data that ends) becomes known to all.

A stock Trainer takes it for granted that every worker decides alike. Where one does not, the others wait for
it in the next exchange.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from transformers import EarlyStoppingCallback, TrainerCallback
from transformers.trainer_callback import CallbackHandler
from transformers.trainer_utils import has_length

from hf_decentral.errors import PeerLost
from hf_decentral.errors.peers import workers_disagree
from hf_decentral.errors.trainer import called_alone, no_batches, no_rows, no_step
from hf_decentral.integrations.plugin import DecentralizedPlugin

Gather = Callable[[Any], list[Any]]
logger = logging.getLogger(__name__)

_FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")
_STEP = ("on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_substep_end", "on_step_end")
# Where wishes become common, and the events whose wishes those may be.
_AGREED_AT = {
    "on_train_begin": ("on_train_begin",),
    "on_epoch_begin": ("on_epoch_begin",),
    "on_step_end": _STEP,
    "on_epoch_end": ("on_epoch_end",),
    "on_evaluate": ("on_evaluate",),
    "on_log": ("on_log",),
    "on_save": ("on_save",),
}
# Events that a user may also cause on one worker alone, outside of training.
_ONLY_WHILE_TOGETHER = ("on_evaluate", "on_log", "on_save")


class Meetings:
    """Where workers exchange small values, each under a name for what it is: nobody takes one for another.

    Args:
        plugin: the plugin.
    """

    def __init__(self, plugin: DecentralizedPlugin) -> None:
        self._plugin = plugin

    def gather_for(self, what: str) -> Gather:
        """A function that gives the value of every worker. Collective.

        It raises MismatchError where another worker came for something else, or did not call it in time
        (where ``what`` is a call); PeerLost where a worker was lost.
        """

        def gather(value: Any) -> list[Any]:
            me = self._plugin.accelerator.process_index
            try:
                every = self._plugin.gather((what, value))
            except PeerLost as error:
                if not what.endswith("()"):
                    raise
                raise called_alone(what, me, str(error).splitlines()[0]) from error
            others = sorted({name for name, _ in every if name != what})
            if others:
                raise called_alone(what, me, f"others came for {', '.join(others)}")
            return [each for _, each in every]

        return gather


class AgreedCallbacks(CallbackHandler):
    """The callbacks of a Trainer; what one of them wants on one worker, all workers do.

    Workers talk only after events that a callback of the user's handles: transformers' own decide alike
    everywhere (except for early stopping, which may look at a worker's own metrics).

    Args:
        handler: the Trainer's own handler.
        gather: gives the value of every worker. Collective.
    """

    def __init__(self, handler: CallbackHandler, gather: Gather) -> None:
        super().__init__(
            handler.callbacks,
            handler.model,
            handler.processing_class,
            handler.optimizer,
            handler.lr_scheduler,
        )
        self._gather = gather
        self._events: frozenset[str] = frozenset()
        self._held: set[str] = set()
        self._meeting = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Every worker logs, evaluates or saves now."""
        before, self._meeting = self._meeting, True
        try:
            yield
        finally:
            self._meeting = before

    def call_event(self, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """As in transformers, and then agree where this is such an event."""
        if event == "on_train_begin":
            self._events = frozenset().union(*self._gather(self._own_events()))
            self._held = set()
        control = super().call_event(event, args, state, control, **kwargs)
        if event == "on_epoch_end" and state.global_step >= state.max_steps:
            control.should_training_stop = True  # a finished run was resumed, on a stream: no step is left
        if event == "on_substep_end" and "on_step_end" in self._events:
            # A worker that left the window of micro-batches now would miss the exchange at its end.
            self._held |= {flag for flag in _FLAGS if getattr(control, flag)}
            for flag in self._held:
                setattr(control, flag, False)
        if event in self._events and (self._meeting or event not in _ONLY_WHILE_TOGETHER):
            self._agree(control)
        return control

    def _agree(self, control: Any) -> None:
        wishes = {flag for flag in _FLAGS if getattr(control, flag)} | self._held
        self._held = set()
        for flag in set().union(*self._gather(wishes)):
            setattr(control, flag, True)

    def _own_events(self) -> set[str]:
        """The events after which this worker's callbacks may want something of their own."""
        free = [type(each) for each in self.callbacks if not _decides_alike(type(each))]
        return {
            at
            for at, events in _AGREED_AT.items()
            if any(getattr(kind, e) is not getattr(TrainerCallback, e) for kind in free for e in events)
        }


def _decides_alike(kind: type) -> bool:
    """Whether callbacks of this class do the same on every worker: a user's own may say so."""
    said = getattr(kind, "decides_alike", None)
    if said is not None:
        return bool(said)
    own = kind.__module__.startswith(("transformers.", "hf_decentral."))
    return own and kind is not EarlyStoppingCallback and kind.__name__ != "JITCheckpointCallback"


def some_rows(data: Any, gather: Gather | None) -> None:
    """See that there is something to train on, on every worker. Collective, where there are several.

    Args:
        data: what the Trainer trains on; what has no length may hold anything.
        gather: gives the value of every worker; None where there is one.

    Raises:
        DataError: on every worker, where one has none.
    """
    empty = has_length(data) and len(data) == 0
    every = [empty] if gather is None else gather(empty)
    if any(every):
        raise no_rows([worker for worker, none in enumerate(every) if none], len(every))


def same_rows(loader: Any, gather: Gather) -> None:
    """See that all workers come with the same data, of which Accelerate gives each its part. Collective.

    Args:
        loader: what is evaluated here.
        gather: gives the value of every worker. Collective.

    Raises:
        MismatchError: on every worker; the results of some would wait for those of others, or be mixed up.
    """
    every = gather(_seen(loader))
    majority = Counter(every).most_common(1)[0][0]
    others = {worker: seen for worker, seen in enumerate(every) if seen != majority}
    if others:
        raise workers_disagree("the data to evaluate", majority, others)


def _seen(loader: Any) -> str:
    if not has_length(loader):
        return "batches of unknown number"
    batches = f"{len(loader)} batch{'' if len(loader) == 1 else 'es'}"
    rows = f" of {loader.total_dataset_length} rows" if hasattr(loader, "total_dataset_length") else ""
    return batches + rows


def common_schedule(gather: Gather, schedule: tuple[Any, ...]) -> tuple[Any, ...]:
    """The schedule of the worker with the fewest batches, for all. Collective.

    Args:
        gather: gives the value of every worker. Collective.
        schedule: what ``Trainer.set_initial_training_values`` returned on this worker: epochs, steps in an
            epoch, examples, training samples, batch size, batches in an epoch, steps.

    Raises:
        DataError: a worker has no batch at all.
    """
    every = gather((schedule[5], schedule[0], schedule[1], schedule[6]))
    batches = [each[0] for each in every]
    fewest = min(every)
    if fewest[0] == 0:
        raise no_batches([worker for worker, count in enumerate(batches) if count == 0], len(batches))
    if fewest == every[0] == max(every):
        return schedule
    logger.warning("workers have %s batches; each epoch ends for all after %d", batches, fewest[0])
    count, epochs, updates, steps = fewest
    return (epochs, updates, *schedule[2:5], count, steps)


class CommonEnd:
    """Data of unknown length ends on all workers at the same step: when the first one has no more.

    Args:
        gather: gives the value of every worker. Collective.

    Attributes:
        resumed: the next data is the rest of an epoch, which may hold no whole step.
    """

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._begun: Any = None
        self._over: Any = None
        self.resumed = False

    def take(self, iterator: Iterator[Any], number: int) -> list[Any]:
        """The batches of one step, or none once a worker has too few for it. Collective.

        Raises:
            DataError: on every worker, where one has too few for a single step.
        """
        if iterator is self._over:
            return []
        if self.resumed:
            self._begun, self.resumed = iterator, False
        found = list(islice(iterator, number))
        counts = self._gather(len(found))
        if min(counts) == number:
            self._begun = iterator
            return found
        if iterator is not self._begun and max(counts) > 0:
            raise no_step(
                [worker for worker, count in enumerate(counts) if count < number], min(counts), number
            )
        self._over = iterator
        return []
