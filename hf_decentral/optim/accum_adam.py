"""AccumAdam and AccumAdamW: Adam whose moments remember windows of gradients instead of single ones.

The rule is that of arXiv 2410.11998 (algorithm "AccumAdam"), with ``s = accum``, ``k = ceil(t / s)``:

    every step     direction = m~ / (1 - b1^k) / (sqrt(v~ / (1 - b2^k)) + eps)
                   with m~ = b1 m + (1 - b1) g and v~ = b2 v + (1 - b2) g^2
    each s-th      commit: m = b1 m + (1 - b1) a and v = b2 v + (1 - b2) a^2, a = mean gradient of the window

The direction uses the current gradient alone; the window's mean enters only at the commit. With ``accum=1``
this is Adam. The optimizers know nothing of neighbours, and every operation is elementwise, so that one
parameter ``[W, *shape]`` may hold the replicas of W workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    ParamsT,
    _default_to_fused_or_foreach,  # torch's own answer to "loops or foreach here?"
)

from hf_decentral.errors import out_of_range, unknown_name
from hf_decentral.errors.optimizers import complex_parameter, sparse_gradient

HORIZONS = ("windows", "steps")


class AccumAdam(Optimizer):
    """Adam with windowed moments and L2 weight decay (arXiv 2410.11998).

    Args:
        params: parameters, named parameters or param groups, as for any torch optimizer.
        lr: learning rate.
        betas: decay of the first and second moment, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: L2 penalty, added to the gradient.
        accum: steps in a window, at least 1. With 1 this is ``torch.optim.Adam``.
        horizon: what the betas count. ``"windows"``, as published: a moment remembers ``accum`` times as many
            steps as in Adam, for long runs. ``"steps"`` raises the betas to the power ``accum``, so that it
            remembers as many steps as in Adam, for short ones.
        foreach: update all tensors with few kernels; None leaves the choice to torch (yes on GPUs).

    State of each parameter: ``step``, ``exp_avg``, ``exp_avg_sq`` and ``accum_grad`` (the window's mean so
    far), the last three in the parameter's shape and dtype. A step allocates one temporary (with L2 a second
    one), as Adam's does. Parameters whose gradient is None are skipped and their window stands still.

    Raises:
        SettingsError: a value out of its range.
        ParameterError: a complex parameter, or in ``step`` a sparse gradient.
    """

    _decoupled = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        accum: int = 4,
        horizon: str = "windows",
        foreach: bool | None = None,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "accum": accum, "horizon": horizon, "foreach": foreach})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; its settings are checked like those of the constructor."""
        super().add_param_group(param_group)
        try:
            _check(self.param_groups[-1], type(self).__name__)
        except Exception:
            self.param_groups.pop()  # a refused group leaves nothing behind
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; give back what the closure returned, if any."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            tensors = [self._of(parameter) for parameter in group["params"] if parameter.grad is not None]
            foreach = group["foreach"]
            if foreach is None:
                parameters = [each.parameter for each in tensors]
                foreach = _default_to_fused_or_foreach(parameters, differentiable=False, use_fused=False)[1]
            for step, together in _alike(tensors, foreach):
                rule = _Rule.at(step, group, self._decoupled)
                if foreach:
                    _step_together(rule, *map(list, zip(*together, strict=True)))
                else:
                    _step_alone(rule, *together[0])
        return loss

    def _of(self, parameter: Tensor) -> _Tensors:
        """One parameter with its gradient and its state, which begins as zeros."""
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse:
            raise sparse_gradient(type(self).__name__, parameter.shape)
        state = self.state[parameter]
        if not state:
            # A number on the CPU, as torch keeps it: reading it never waits for a GPU.
            state["step"] = torch.zeros((), dtype=torch.int64)
            for name in ("exp_avg", "exp_avg_sq", "accum_grad"):
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return _Tensors(
            parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["accum_grad"], state["step"]
        )


class AccumAdamW(AccumAdam):
    """AccumAdam with decoupled weight decay: the parameter shrinks by ``lr * weight_decay`` before the step.

    The arguments, the state and the errors are those of ``AccumAdam``; with ``accum=1`` this is
    ``torch.optim.AdamW``. In a decentralized run the decay acts on the averaged parameters, as in the
    authors' code.
    """

    _decoupled = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        *,
        accum: int = 4,
        horizon: str = "windows",
        foreach: bool | None = None,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, accum=accum, horizon=horizon, foreach=foreach)


class _Tensors(NamedTuple):
    """A parameter, its gradient, m, v, a: all of one shape; and its counter."""

    parameter: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    window: Tensor
    step: Tensor


class _Rule(NamedTuple):
    """The numbers of one step; k and the position in the window are in them already."""

    beta1: float
    beta2: float
    eps: float
    l2: float
    shrink: float  # the factor of decoupled weight decay
    per_mean: float  # -lr * b1 / (1 - b1^k)
    per_gradient: float  # -lr * (1 - b1) / (1 - b1^k)
    per_square: float  # b2 / (1 - b2^k)
    per_gradient_square: float  # (1 - b2) / (1 - b2^k)
    share: float  # 1 / s
    commits: bool

    @classmethod
    def at(cls, step: int, group: dict[str, Any], decoupled: bool) -> _Rule:
        """The rule of step number ``step`` (the first is 1)."""
        accum, decay, rate = group["accum"], group["weight_decay"], float(group["lr"])
        power = accum if group["horizon"] == "steps" else 1
        beta1, beta2 = (float(beta) ** power for beta in group["betas"])
        windows = -(-step // accum)
        correction1, correction2 = 1 - beta1**windows, 1 - beta2**windows
        return cls(
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            l2=0.0 if decoupled else decay,
            shrink=1 - rate * decay if decoupled else 1.0,
            per_mean=-rate * beta1 / correction1,
            per_gradient=-rate * (1 - beta1) / correction1,
            per_square=beta2 / correction2,
            per_gradient_square=(1 - beta2) / correction2,
            share=1 / accum,
            commits=step % accum == 0,
        )


def _alike(tensors: list[_Tensors], foreach: bool) -> Iterator[tuple[int, list[_Tensors]]]:
    """Count the step, and put together what one call may update: same device, dtypes and step number."""
    together: dict[Any, list[_Tensors]] = {}
    for number, each in enumerate(tensors):
        each.step.add_(1)
        kind = (each.parameter.device, each.parameter.dtype, each.gradient.dtype)
        together.setdefault((int(each.step), kind if foreach else number), []).append(each)
    for (step, _), alike in together.items():
        yield step, alike


def _step_alone(rule: _Rule, x: Tensor, g: Tensor, m: Tensor, v: Tensor, a: Tensor, _: Tensor) -> None:
    """One tensor; the same operations in the same order as ``_step_together``."""
    if rule.l2:
        g = g.add(x, alpha=rule.l2)
    if rule.shrink != 1:
        x.mul_(rule.shrink)
    root = v.mul(rule.per_square).addcmul_(g, g, value=rule.per_gradient_square).sqrt_().add_(rule.eps)
    # m~ is added in its two parts, so that it needs no memory of its own.
    x.addcdiv_(m, root, value=rule.per_mean).addcdiv_(g, root, value=rule.per_gradient)
    a.add_(g, alpha=rule.share)
    if rule.commits:
        m.mul_(rule.beta1).add_(a, alpha=1 - rule.beta1)
        v.mul_(rule.beta2).addcmul_(a, a, value=1 - rule.beta2)
        a.zero_()


def _step_together(
    rule: _Rule,
    x: list[Tensor],
    g: list[Tensor],
    m: list[Tensor],
    v: list[Tensor],
    a: list[Tensor],
    _: list[Tensor],
) -> None:
    """Tensors of one device, dtype and step number, with one kernel for each operation."""
    if rule.l2:
        g = list(torch._foreach_add(g, x, alpha=rule.l2))
    if rule.shrink != 1:
        torch._foreach_mul_(x, rule.shrink)
    root = torch._foreach_mul(v, rule.per_square)
    torch._foreach_addcmul_(root, g, g, value=rule.per_gradient_square)
    torch._foreach_sqrt_(root)
    torch._foreach_add_(root, rule.eps)
    torch._foreach_addcdiv_(x, m, root, value=rule.per_mean)
    torch._foreach_addcdiv_(x, g, root, value=rule.per_gradient)
    torch._foreach_add_(a, g, alpha=rule.share)
    if rule.commits:
        torch._foreach_mul_(m, rule.beta1)
        torch._foreach_add_(m, a, alpha=1 - rule.beta1)
        torch._foreach_mul_(v, rule.beta2)
        torch._foreach_addcmul_(v, a, a, value=1 - rule.beta2)
        torch._foreach_zero_(a)


def _check(group: dict[str, Any], optimizer: str) -> None:
    for name, value in (("lr", group["lr"]), ("eps", group["eps"]), ("weight_decay", group["weight_decay"])):
        if not 0 <= float(value) < float("inf"):
            raise out_of_range(name, value, "a finite number that is not negative", "give 0 or more")
    betas = group["betas"]
    if len(betas) != 2 or not all(0 <= float(beta) < 1 for beta in betas):
        raise out_of_range(
            "betas", betas, "two numbers, each from 0 up to but not 1", "Adam's are (0.9, 0.999)"
        )
    accum = group["accum"]
    if isinstance(accum, bool) or not isinstance(accum, int) or accum < 1:
        raise out_of_range("accum", accum, "a whole number of steps, at least 1", "1 makes it plain Adam")
    if group["horizon"] not in HORIZONS:
        raise unknown_name("horizon", group["horizon"], HORIZONS)
    for parameter in group["params"]:
        if parameter.is_complex():
            raise complex_parameter(optimizer, parameter.shape)
