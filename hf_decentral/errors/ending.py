"""How a program ends that runs one worker: with a sentence, where an error of this package stopped it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hf_decentral.errors.base import DecentralizedError


@contextmanager
def no_traceback() -> Iterator[None]:
    """End the process with an error of this package as its words alone, and the worker's number.

    Other errors keep their traceback. The exit code is 1, and 130 after Ctrl-C, as shells expect.
    """
    try:
        yield
    except DecentralizedError as error:
        sys.exit(f"{type(error).__name__} (worker {os.environ.get('RANK', 0)}): {error}")
    except KeyboardInterrupt:
        sys.exit(130)
