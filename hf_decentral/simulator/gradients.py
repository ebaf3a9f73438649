"""The gradients of all workers, some workers at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hf_decentral.errors.simulator import cannot_vectorize, changing_buffer, nothing_trains
from hf_decentral.simulator.base import Problem
from hf_decentral.simulator.shards import Shards

CHUNK_BYTES = 64 * 2**20
"""What one chunk of workers makes of tensors. Larger chunks leave the caches and take longer."""

_DROPOUT = 3  # the stream of random numbers that layers draw


class Gradients:
    """Computes ``.grad`` of stacked parameters from one batch of each worker.

    Workers are taken in chunks, as many at a time as make about ``chunk_bytes`` of tensors: one worker is run
    and what it makes is counted.

    Args:
        problem: model, loss and data. The model is copied.
        params: by name ``[W, *shape]``, each with a ``.grad`` of the same shape, to which is written.
        shards: who trains on what.
        batch: samples of each worker in each step.
        chunk: workers that are taken at once; None: as many as fit in :data:`CHUNK_BYTES`.

    Attributes:
        chunk: workers that are taken at once.
        bad: the workers whose loss or gradient was not finite in the last call; their gradients are zero.

    Raises:
        ParameterError: a module that cannot be run for several workers at once, or with nothing to train.
    """

    def __init__(
        self,
        problem: Problem,
        params: dict[str, nn.Parameter],
        shards: Shards,
        batch: int,
        chunk: int | None = None,
    ) -> None:
        self._model = copy.deepcopy(problem.model).train()
        self._loss = problem.loss
        self._train = problem.train
        self._params = params
        self._shards = shards
        self._batch = batch
        self._fixed = {k: v for k, v in _named(self._model).items() if k not in params}
        self._run = vmap(grad_and_value(self._value), in_dims=(0, 0, 0), randomness="different")
        self._losses = torch.zeros(shards.workers)
        self.bad: list[int] = []
        _refuse_changing(self._model, problem.train[0][: min(2, problem.samples)])
        self.worker_bytes = self._measure()
        self.chunk = chunk or max(1, min(shards.workers, CHUNK_BYTES // max(1, self.worker_bytes)))

    def __call__(self, step: int) -> Tensor:
        """Write the gradients of a step; returns the losses ``[W]``, which the next call overwrites."""
        samples = self._shards.batch(step, self._batch)
        self.bad = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hash((_DROPOUT, self._shards.seed, step)) % 2**63)
            for rows, losses, grads in self._chunks(dict(self._params), samples):
                self._losses[rows] = losses
                bad = [rows.start + row for row in _bad(losses, grads)]
                for name, grad in grads.items():
                    self._grad(name)[rows].copy_(grad)
                    self._grad(name)[bad] = 0.0
                self.bad += bad
        return self._losses

    def at(self, params: dict[str, Tensor], samples: Tensor) -> tuple[Tensor, dict[str, Tensor], list[int]]:
        """The losses ``[K]`` and gradients ``[K, *shape]`` of some workers at these parameters, and the rows
        whose numbers are not finite, with zeros in the place of their gradients.

        Args:
            params: by name ``[K, *shape]``.
            samples: ``[K, batch]``.
        """
        chunks = [(losses, grads) for _, losses, grads in self._chunks(params, samples)]
        losses = torch.cat([found for found, _ in chunks])
        grads = {name: torch.cat([found[name] for _, found in chunks]) for name in params}
        bad = _bad(losses, grads)
        for grad in grads.values():
            grad[bad] = 0.0
        return losses, grads, bad

    def _chunks(
        self, params: dict[str, Tensor], samples: Tensor
    ) -> Iterator[tuple[slice, Tensor, dict[str, Tensor]]]:
        """The rows of some workers at a time, with their losses and gradients."""
        for first in range(0, len(samples), self.chunk):
            rows = slice(first, first + self.chunk)
            own = {name: p.detach()[rows] for name, p in params.items()}
            grads, losses = self._run(own, *(part[samples[rows]] for part in self._train))
            yield rows, losses, grads

    def _grad(self, name: str) -> Tensor:
        grad = self._params[name].grad
        if grad is None:  # somebody dropped it
            grad = self._params[name].grad = torch.zeros_like(self._params[name])
        return grad

    def _value(self, params: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of one worker."""
        outputs = functional_call(self._model, (params, self._fixed), (inputs,))
        return self._loss(outputs, targets)

    def _measure(self) -> int:
        """Bytes of all tensors that the gradients of one worker make; it holds fewer of them at any time."""
        samples = self._shards.batch(0, self._batch)[:1]
        own = {name: p.detach()[:1] for name, p in self._params.items()}
        try:
            with torch.random.fork_rng(devices=[]), _Counting() as made:
                self._run(own, *(part[samples] for part in self._train))
        except RuntimeError as error:
            raise cannot_vectorize(type(self._model).__name__, _first_line(error)) from error
        return int(made.bytes)


def _bad(losses: Tensor, grads: dict[str, Tensor]) -> list[int]:
    """The rows with a loss or a gradient that is not finite."""
    wrong = ~losses.isfinite()
    for grad in grads.values():
        # The norm takes a fraction of the time of looking at each number; it may overflow on finite ones.
        wrong |= ~torch.linalg.vector_norm(grad.unsqueeze(-1).flatten(1), dim=1).isfinite()
    return [
        row
        for row in wrong.nonzero().flatten().tolist()
        if not all(bool(found[row].isfinite().all()) for found in (losses, *grads.values()))
    ]


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of new tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {_memory(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for t in tree_leaves(made):
            if isinstance(t, Tensor) and _memory(t) not in given:
                self.bytes += t.untyped_storage().nbytes()
        return made


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _named(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def stacked(model: nn.Module, workers: int) -> dict[str, nn.Parameter]:
    """The trainable parameters of a model, ``[W, *shape]``, every worker's equal to the model's.

    Raises:
        ParameterError: there are none.
    """
    found = {
        name: nn.Parameter(p.detach().expand(workers, *p.shape).clone(memory_format=torch.contiguous_format))
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    if not found:
        raise nothing_trains(type(model).__name__)
    for p in found.values():
        p.grad = torch.zeros_like(p)
    return found


def _refuse_changing(model: nn.Module, inputs: Tensor) -> None:
    """Raise ParameterError where a forward pass writes to a buffer."""
    trial = copy.deepcopy(model)
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        trial(inputs)
    for name, buffer in trial.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            raise changing_buffer(type(model).__name__, name)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
