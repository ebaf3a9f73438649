"""Training loops under a real Accelerator, for the tests to run in one or several processes."""

from __future__ import annotations

import os
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hf_decentral.integrations.plugin import DecentralizedPlugin
from hf_decentral.integrations.settings import NAMES

ROWS, WIDTH = 64, 6


def accelerator(**settings: Any) -> Accelerator:
    """A fresh one on the CPU, in processes that tests/processes.py has joined already."""
    world = os.environ.get("WORLD_SIZE", "1")
    os.environ.update(LOCAL_WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    return Accelerator(cpu=True, **settings)


def model(seed: int = 0) -> nn.Module:
    """A small net with BatchNorm, a frozen layer, and a tied weight."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)
    )
    net[4].weight = net[3].weight
    net[5].bias.requires_grad_(False)
    return net


def data(seed: int = 1, rows: int = ROWS) -> TensorDataset:
    """Rows with a target that a small net can learn."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, WIDTH, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).tanh())


class Run:
    """One worker of a run: everything that a script makes before its loop."""

    def __init__(
        self, topology: Any = "ring", *, lr: float = 0.01, name: str = "", seed: int = 0, **settings: Any
    ) -> None:
        plugin_settings = {k: settings.pop(k) for k in NAMES if k in settings}
        scaler = settings.pop("scaler", None)
        self.accelerator = accelerator(**settings)
        if scaler is not None:
            self.accelerator.scaler = scaler
        self.plugin = DecentralizedPlugin(topology=topology, **plugin_settings).attach(self.accelerator)
        net = model(seed + 100 * self.accelerator.process_index)
        optimizer = (
            self.plugin.optimizer(net, name, lr=lr) if name else torch.optim.AdamW(net.parameters(), lr=lr)
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + 0.1 * epoch))
        loader = DataLoader(data(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            net, optimizer, loader, scheduler
        )
        self.noise = torch.Generator().manual_seed(self.accelerator.process_index)

    def train(self, steps: int, *, noisy: bool = True) -> list[float]:
        """Take optimizer steps, through as many epochs as it needs; returns the losses."""
        losses: list[float] = []
        while True:
            for x, y in self.loader:
                if len(losses) == steps:
                    return losses
                losses.append(self.step(x + 0.1 * torch.randn(x.shape) if noisy else x, y))

    def step(self, x: Tensor, y: Tensor) -> float:
        """One micro-batch."""
        with self.accelerator.accumulate(self.model):
            loss = nn.functional.mse_loss(self.model(x), y)
            self.accelerator.backward(loss)
            if self.accelerator.sync_gradients:
                self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
        return float(loss.detach())

    def state(self) -> dict[str, Tensor]:
        """A copy of all parameters and buffers."""
        plain = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        return {name: t.detach().clone() for name, t in plain.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def mean(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The consensus of floating-point entries."""
    return {
        n: torch.stack([s[n] for s in states]).mean(0) for n in states[0] if states[0][n].is_floating_point()
    }
