"""Asynchronous training in pairs among real processes (AD-PSGD, arXiv 1710.06952), over gloo.

Even workers are passive, odd ones active (the split of the authors). In each of its steps an active worker
sends its parameters to one passive neighbour drawn at random, behind its computing; that one puts the mean in
the place of its own and sends it back, in a thread of its own. A passive worker waits for nobody, and an
active one for the thread of a passive one, so that no cycle of workers can wait for each other.

The gradient is taken at a copy, the model's parameters, while averages go to the buffer behind it; the local
step is taken on the buffer's numbers, with that stale gradient.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor

from hf_decentral.cluster.draws import Purpose, uniform
from hf_decentral.cluster.members import Neighbours, partners
from hf_decentral.errors import out_of_range
from hf_decentral.errors.cluster import meetings_ended, not_one_kind
from hf_decentral.errors.peers import workers_disagree
from hf_decentral.transport.background import Background
from hf_decentral.transport.lost import Notes, cause_of

_HEADER, _PAYLOAD, _REPLY = 0, 1, 2  # tags
_GOODBYE, _MEET = 0, 1  # what a header says
# How long a thread waits for the next message of a worker, which may be as slow as it likes; a connection
# that breaks ends the wait at once.
_FOREVER = timedelta(days=365)
_number = count()


class Meetings:
    """Lets the processes of a run average their parameters in pairs. Collective.

    ::

        with Meetings(model.parameters(), neighbours(topology)) as meetings:
            for batch in loader:
                loss_of(model, batch).backward()
                with meetings.local_step():
                    optimizer.step()
                optimizer.zero_grad()

    Workers may take different numbers of steps. Afterwards each has its own parameters; their mean is the
    result of the run.

    Args:
        params: what is averaged: floating point of one dtype, of the same shapes on every worker.
        neighbours: for each worker those with whom it may average (:func:`~hf_decentral.cluster.neighbours`).
        seed: of the partners.
        deadline_seconds: longest wait for a worker that gives no sign.

    Attributes:
        steps: local steps of this worker.
        averages: in which it took part.
        sent_bytes: what it has sent.
        waited_seconds: how long it stood still for others.

    Raises:
        SettingsError: neighbours of another number of workers.
        ParameterError: parameters of several dtypes, or of integers.
        TopologyError: the pairs of an odd and an even worker do not connect all of them.
        MismatchError: the workers have different parameters.
    """

    def __init__(
        self, params: Iterable[Tensor], neighbours: Neighbours, seed: int = 0, deadline_seconds: float = 600.0
    ) -> None:
        self.worker, workers = dist.get_rank(), dist.get_world_size()
        if len(neighbours) != workers:
            advice = "take the neighbours in a topology for the workers of this run"
            raise out_of_range("neighbours", len(neighbours), f"those of {workers} workers", advice)
        pairs = partners(neighbours, split=True)
        self._partners, self._seed = pairs[self.worker], seed
        self._deadline = timedelta(seconds=deadline_seconds)
        self._params = [p.detach() for p in params]
        self._x, self._views = _flat(self._params)
        self._inbox = torch.empty_like(self._x)
        self.steps = self.averages = 0
        self.sent_bytes = self.waited_seconds = 0.0
        self._group = dist.new_group(backend="gloo", timeout=self._deadline)
        self._agree()
        self._notes = Notes(self.worker, f"meetings/{next(_number)}")
        self._error: Exception | None = None
        self._ended = False
        self._writing = threading.Lock()  # of the buffer
        self._serving = threading.Lock()  # of the inbox of a passive worker
        self._background = Background()
        self._meeting: Callable[[], None] | None = None
        self._guests: dict[int, threading.Thread] = {}
        self._keep()
        for active in [i for i, near in enumerate(pairs) if self.worker in near]:
            thread = threading.Thread(
                target=self._serve, args=(active,), name=f"hf_decentral meets {active}", daemon=True
            )
            self._guests[active] = thread
            thread.start()
        self._begin()

    def __enter__(self) -> Meetings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()

    @property
    def passive(self) -> bool:
        """Whether this worker begins no averages."""
        return not self._partners

    @contextmanager
    def local_step(self) -> Iterator[None]:
        """Inside, the parameters are the present ones, averages included, and the optimizer takes its step;
        afterwards the next average begins. After an error inside, the present ones are what they were.

        Raises:
            PeerLost: a partner sent nothing within the deadline, or its connection broke.
            SettingsError: after :meth:`close`.
        """
        if self._ended:
            raise meetings_ended()
        self._finish()
        with self._writing:
            self._show()
            yield
            self._keep()
        self.steps += 1
        self._begin()

    def close(self) -> None:
        """Say goodbye; a passive worker goes on to average until all who may come to it have said so.

        Raises:
            PeerLost: one of them gave no sign within the deadline, or its connection broke.
        """
        if self._ended:
            return
        self._ended = True
        self._finish()
        for partner in self._partners:
            self._safely(partner, lambda partner=partner: self._send(_header(_GOODBYE), partner, _HEADER))  # type: ignore[misc]
        self._raise()
        self._wait_for_goodbyes()
        with self._writing:
            self._show()

    def _begin(self) -> None:
        """Ask one of the passive neighbours for an average, behind the computing."""
        if self._partners:
            u = uniform(self._seed, self.steps, self.worker, Purpose.PARTNER)
            partner = self._partners[int(u * len(self._partners))]
            self._meeting = self._background.begin(lambda: self._safely(partner, lambda: self._ask(partner)))

    def _finish(self) -> None:
        """Wait for the average, and tell of what went wrong in any thread."""
        if self._meeting is not None:
            began = time.perf_counter()
            self._meeting()
            self._meeting = None
            self.waited_seconds += time.perf_counter() - began
        self._raise()

    def _ask(self, partner: int) -> None:
        # Nobody else writes to the buffer of an active worker before this is finished.
        reply = dist.irecv(self._inbox, partner, group=self._group, tag=_REPLY)
        self._send(_header(_MEET), partner, _HEADER)
        self._send(self._x, partner, _PAYLOAD)
        _wait(reply, self._deadline)
        self._x.copy_(self._inbox)
        self.averages += 1
        self._notes.passed(self.averages)

    def _serve(self, active: int) -> None:
        """Average with one active worker as often as it asks."""
        self._safely(active, lambda: self._answer(active))

    def _answer(self, active: int) -> None:
        header = _header(_MEET)
        while True:
            _wait(dist.irecv(header, active, group=self._group, tag=_HEADER), _FOREVER)
            if int(header) == _GOODBYE:
                return
            with self._serving:
                payload = dist.irecv(self._inbox, active, group=self._group, tag=_PAYLOAD)
                _wait(payload, self._deadline)
                with self._writing:
                    self._inbox.add_(self._x).mul_(0.5)
                    self._x.copy_(self._inbox)
                self._send(self._inbox, active, _REPLY)
                self.averages += 1

    def _send(self, what: Tensor, to: int, tag: int) -> None:
        _wait(dist.isend(what, to, group=self._group, tag=tag), self._deadline)
        if tag != _HEADER:
            self.sent_bytes += what.numel() * what.element_size()

    def _safely(self, other: int, talk: Callable[[], None]) -> None:
        """Keep an error for the thread of the training; one of the wire says who was lost."""
        began = time.perf_counter()
        try:
            talk()
        except RuntimeError as error:
            waited = time.perf_counter() - began
            self._error = self._explain([other], waited, cause_of(error))
        except Exception as error:
            self._error = error

    def _explain(self, lost: list[int], waited: float, cause: str) -> Exception:
        return self._notes.explain(lost, self.averages, waited, self._deadline.total_seconds(), cause)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _wait_for_goodbyes(self) -> None:
        """Wait as long as any of those who have not said goodbye comes on."""
        seen: list[int] = []
        began = since = time.perf_counter()
        while missing := [active for active, thread in self._guests.items() if thread.is_alive()]:
            self._guests[missing[0]].join(min(1.0, self._deadline.total_seconds() / 4))
            self._raise()
            come = [self.averages, len(missing), *map(self._notes.passed_by, missing)]
            if come != seen:
                seen, since = come, time.perf_counter()
            elif time.perf_counter() - since > self._deadline.total_seconds():
                raise self._explain(missing, time.perf_counter() - since, "no sign, and no goodbye")
        self._raise()
        self.waited_seconds += time.perf_counter() - began

    def _agree(self) -> None:
        """See that all workers send the same number of bytes."""
        mine = f"{self._x.numel()} numbers of {str(self._x.dtype).removeprefix('torch.')}"
        found: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(found, mine, group=self._group)
        usual = max(found, key=found.count)
        others = {worker: what for worker, what in enumerate(found) if what != usual}
        if others:
            raise workers_disagree("the parameters", usual, others)

    @torch.no_grad()
    def _show(self) -> None:
        for p, view in zip(self._params, self._views, strict=True):
            p.copy_(view)

    @torch.no_grad()
    def _keep(self) -> None:
        for p, view in zip(self._params, self._views, strict=True):
            view.copy_(p)


def _header(what: int) -> Tensor:
    return torch.tensor([what])


def _wait(work: dist.Work | None, longest: timedelta) -> None:
    if work is not None:  # as it is for who is no member of a group
        work.wait(longest)


def _flat(params: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A buffer ``[P]`` on the CPU, from which gloo can send, and a view of it for each parameter."""
    kinds = {p.dtype for p in params}
    if len(kinds) != 1 or not params[0].is_floating_point():
        raise not_one_kind(sorted(str(kind).removeprefix("torch.") for kind in kinds))
    x = torch.empty(sum(p.numel() for p in params), dtype=params[0].dtype)
    parts = torch.split(x, [p.numel() for p in params])
    return x, [part.view(p.shape) for part, p in zip(parts, params, strict=True)]
