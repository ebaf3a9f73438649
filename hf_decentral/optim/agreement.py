"""Workers agree before they exchange anything: told on every worker, before it could hang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from hf_decentral.errors.peers import other_worker_failed, workers_disagree
from hf_decentral.optim.bucket import Name, signature
from hf_decentral.transport import Transport

T = TypeVar("T")
Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Proposal:
    """What one worker comes with.

    Attributes:
        settings: name and value of everything that must be equal, in the order in which it is compared.
        problem: the local error that keeps this worker from beginning.
    """

    settings: Rows
    problem: str | None = None


def describe(params: Sequence[Tensor], name: Name) -> Rows:
    """The parameters as settings, one for each, so that the message names the one that differs."""
    rows = [("the number of trainable parameters", str(len(params)))]
    for p, (shape, dtype, stride) in zip(params, signature(params), strict=True):
        rows.append((f"the shape of {name(p)}", f"{list(shape)} of {dtype} with strides {list(stride)}"))
    return tuple(rows)


def rows_of(tensor: Tensor, transport: Transport) -> Tensor:
    """A tensor that is in no bucket, with the axis of the workers of this process: ``[W, *shape]``."""
    return tensor.detach() if len(transport.local) > 1 else tensor.detach().unsqueeze(0)


def make_equal(transport: Transport, tensors: Sequence[Tensor]) -> None:
    """Give every worker worker 0's values. Collective."""
    for tensor in tensors:
        rows = rows_of(tensor, transport)
        dense = rows.contiguous()
        transport.broadcast_(dense)
        if dense is not rows:
            rows.copy_(dense)


def agree(transport: Transport, mine: Proposal, error: Exception | None = None) -> None:
    """Compare the proposals of all workers. Collective.

    Raises:
        MismatchError: the workers disagree, or another one has a problem.
        Exception: ``error``, where this worker has one itself.
    """
    proposals: list[Proposal] = transport.gather(mine)
    if error is not None:
        raise error
    problems = {k: p.problem for k, p in enumerate(proposals) if p.problem is not None}
    if problems:
        raise other_worker_failed(problems)
    _compare([p.settings for p in proposals])


def together(transport: Transport, make: Callable[[], T], rows: Callable[[T], Rows]) -> T:
    """Make something on every worker, and see that it is the same on all. Collective.

    Args:
        transport: how to reach the others.
        make: makes it; whatever it raises, the others hear of it.
        rows: what must be equal about it.

    Raises:
        MismatchError: the workers disagree, or another one could not make it.
    """
    try:
        made = make()
    except Exception as error:  # whatever it is, the others must not wait for this worker
        agree(transport, Proposal((), str(error) or type(error).__name__), error)
        raise
    agree(transport, Proposal(rows(made)))
    return made


def _compare(settings: list[Rows]) -> None:
    first_difference: Any = next((rows for rows in zip(*settings, strict=False) if len(set(rows)) > 1), None)
    if first_difference is None:
        return
    (subject, majority), _ = Counter(first_difference).most_common(1)[0]
    others = {
        k: value if what == subject else f"{what}: {value}"
        for k, (what, value) in enumerate(first_difference)
        if (what, value) != (subject, majority)
    }
    raise workers_disagree(subject, majority, others)
