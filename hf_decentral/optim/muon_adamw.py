"""Muon for a whole model: matrices by Muon, everything else by AdamW, in one torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from hf_decentral.errors.optimizers import muon_needs_matrices


class MuonAdamW(Optimizer):
    """One optimizer over two rules: a param group says ``"rule": "muon"`` or ``"rule": "adamw"``.

    torch's Muon takes matrices only; embeddings, heads, norms and biases are left to AdamW, as its authors
    advise. There is one list of groups and one state, so schedulers, clipping, checkpoints and gossip see an
    ordinary optimizer.

    Args:
        groups: param groups, each with ``"rule"`` (``"adamw"`` where it is missing).
        lr: learning rate of groups without their own.
        weight_decay: decoupled weight decay of groups without their own.
        muon: further settings of torch.optim.Muon.
        adamw: further settings of torch.optim.AdamW.

    Raises:
        ParameterError: a group of rule "muon" holds something else than matrices.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        *,
        muon: dict[str, Any] | None = None,
        adamw: dict[str, Any] | None = None,
    ) -> None:
        common: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        # A first parameter, replaced at once: torch refuses optimizers without any.
        seed = torch.nn.Parameter(torch.zeros(1, 1))
        self._rules: dict[str, Optimizer] = {
            "muon": torch.optim.Muon([seed], **common, **(muon or {})),
            "adamw": torch.optim.AdamW([seed], **common, **(adamw or {})),
        }
        super().__init__(list(groups), common)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; ``param_group["rule"]`` is its optimizer, ``"adamw"`` if missing."""
        rule = param_group.setdefault("rule", "adamw")
        for name, value in self._rules[rule].defaults.items():
            if name not in self.defaults:
                param_group.setdefault(name, value)
        if rule == "muon":
            param_group["params"] = list(param_group["params"])
            check_matrices(param_group["params"])
        super().add_param_group(param_group)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: torch's part and the two rules."""
        return {**super().__getstate__(), "_rules": self._rules}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step every group by its rule; give back what the closure returned, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for name, inner in self._rules.items():
            # Looked up each time: load_state_dict replaces both objects.
            inner.state = self.state
            inner.param_groups = [group for group in self.param_groups if group["rule"] == name]
            inner.step()
        return loss


def check_matrices(parameters: Iterable[Tensor]) -> None:
    """Raise ParameterError at the first parameter that is no matrix."""
    for parameter in parameters:
        if parameter.ndim != 2:
            raise muon_needs_matrices(parameter.shape)
