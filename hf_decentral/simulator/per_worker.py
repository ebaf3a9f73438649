"""Local optimizers over stacked parameters: one for all workers if it is elementwise, else one for each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hf_decentral.optim.pieces import separable

Make = Callable[[nn.Module], Optimizer]


def over(params: dict[str, nn.Parameter], model: nn.Module, make: Make) -> Optimizer:
    """The optimizer that ``make`` gives of a model, over the parameters of all workers.

    Args:
        params: by name ``[W, *shape]``.
        model: whose trainable parameters have those names; it tells an optimizer what is a matrix, an
            embedding or a bias.
        make: makes an optimizer of a model.
    """
    single = make(model)
    if not separable(single):
        return PerWorker(params, model, make)
    # Elementwise, and without state so far: the stacked parameters take the places of the model's.
    stacked = {id(p): params[name] for name, p in model.named_parameters() if name in params}
    for group in single.param_groups:
        group["params"] = [stacked[id(p)] for p in group["params"]]
    return single


class PerWorker(Optimizer):
    """An optimizer for each worker, on the rows of stacked parameters.

    Args:
        params: by name ``[W, *shape]``.
        model: see :func:`over`.
        make: see :func:`over`.
    """

    def __init__(self, params: dict[str, nn.Parameter], model: nn.Module, make: Make) -> None:
        super().__init__(list(params.values()), {})
        workers = len(next(iter(params.values())))
        self._rows: list[list[nn.Parameter]] = []
        self._inner: list[Optimizer] = []
        originals = dict(model.named_parameters())
        shared = {id(b): b for b in model.buffers()}
        for worker in range(workers):
            rows = {name: nn.Parameter(p.detach()[worker]) for name, p in params.items()}
            memo: dict[int, Any] = {id(originals[name]): row for name, row in rows.items()}
            self._inner.append(make(copy.deepcopy(model, {**shared, **memo})))
            self._rows.append(list(rows.values()))

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Let every worker's optimizer take its step."""
        for worker in range(len(self._inner)):
            self.step_row(worker)

    @torch.no_grad()
    def step_row(self, worker: int) -> None:
        """Let the optimizer of one worker take its step."""
        stacks: list[Tensor] = self.param_groups[0]["params"]
        for stack, row in zip(stacks, self._rows[worker], strict=True):
            view = stack.detach()[worker]
            if row.data_ptr() != view.data_ptr() or row.stride() != view.stride():
                row.data = view  # the parameter has moved into a bucket
            row.grad = None if stack.grad is None else stack.grad[worker]
        self._inner[worker].step()

    def state_dict(self) -> dict[str, Any]:
        """That of every worker's optimizer too."""
        return {**super().state_dict(), "inner": [each.state_dict() for each in self._inner]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "inner"})
        for each, state in zip(self._inner, state_dict["inner"], strict=True):
            each.load_state_dict(state)
