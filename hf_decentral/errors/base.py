"""The tree of errors, and the three parts of which every message is made.

DecentralizedError
├── SettingsError     (ValueError)    a setting that cannot be meant
├── TopologyError     (ValueError)    a topology that these workers cannot form
├── DataError         (ValueError)    a dataset that cannot be trained on
├── MismatchError     (RuntimeError)  workers that disagree
├── ParameterError    (RuntimeError)  parameters used in a way that would lose numbers
├── PeerLost          (RuntimeError)  a worker that no longer answers
├── LaunchError       (RuntimeError)  a run that was started in a way that cannot work
└── CheckpointError   (RuntimeError)  a checkpoint that cannot be written or read
"""

from __future__ import annotations


class DecentralizedError(Exception):
    """Base of every error that this package raises on purpose."""


class SettingsError(DecentralizedError, ValueError):
    """A setting that cannot be meant: a misspelt name, a number out of range."""


class TopologyError(DecentralizedError, ValueError):
    """A topology that the workers and hosts at hand cannot form."""


class DataError(DecentralizedError, ValueError):
    """A dataset that is missing, unreadable, or too small to train on."""


class MismatchError(DecentralizedError, RuntimeError):
    """Workers that disagree on the model, the topology or the settings."""


class ParameterError(DecentralizedError, RuntimeError):
    """Parameters or an optimizer used in a way that would silently lose an exchange."""


class PeerLost(DecentralizedError, RuntimeError):
    """A worker that sent nothing within the deadline, or whose connection broke.

    Attributes:
        workers: the workers that were lost, as far as it is known.
        round: number of the round that was waited for.
    """

    def __init__(self, text: str, workers: tuple[int, ...], round: int) -> None:
        super().__init__(text)
        self.workers = workers
        self.round = round


class LaunchError(DecentralizedError, RuntimeError):
    """A run that was started in a way that cannot work."""


class CheckpointError(DecentralizedError, RuntimeError):
    """A checkpoint that cannot be written, or that does not fit this run."""


def sentence(given: str, expected: str, advice: str) -> str:
    """Join the three parts of a message: what was given, what was expected, what to do next."""
    return "\n  ".join(f"{_capital(part).rstrip('.')}." for part in (given, expected, advice))


def _capital(part: str) -> str:
    """Begin with a capital, unless the first word is a name out of code (``lr=0``, ``batch_size``)."""
    first = part.split(maxsplit=1)[0] if part.strip() else ""
    return part[0].upper() + part[1:] if first.rstrip(".,;:?").isalpha() else part
