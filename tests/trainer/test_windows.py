"""Windows of micro-batches that an epoch does not fill, and the rate in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Subset
from transformers import TrainerCallback

from hf_decentral.trainer import DecentralizedTrainer, DecentralizedTrainingArguments
from tests.processes import run
from tests.trainer.runs import Replicas, Rows, model, settings, weights

pytestmark = pytest.mark.processes


class Rates(TrainerCallback):
    """Notes the rate that the optimizer has, inside of Accelerate's wrapper and outside."""

    decides_alike = True

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        outer = kwargs["optimizer"]
        self.seen.append((outer.optimizer.param_groups[0]["lr"], outer.param_groups[0]["lr"]))


def _trained(rank: int, folder: str, rows: list[int]) -> dict[str, Any]:
    """One epoch with windows of four micro-batches of two rows; ``rows`` of each worker, its own."""
    replicas, rates, read = Replicas(), Rates(), []
    args = DecentralizedTrainingArguments(
        **settings(folder, optim="dsgd", topology="complete", gradient_accumulation_steps=4, max_steps=-1,
                   num_train_epochs=1, max_grad_norm=0.0, lr_scheduler_type="linear", logging_steps=1)
    )  # fmt: skip

    def collate(batch: list[Any]) -> dict[str, Tensor]:
        read.extend(batch)
        return {name: torch.stack([row[name] for row in batch]) for name in batch[0]}

    made = DecentralizedTrainer(
        model(), args, collate, Subset(Rows(), range(rows[rank])), callbacks=[replicas, rates]
    )
    made.accelerator.prepare_data_loader = lambda loader, **_: loader  # type: ignore[method-assign]
    made.train()
    told = [line["learning_rate"] for line in made.state.log_history if "learning_rate" in line]
    rounds = [handle.step for handle in made.plugin.handles]
    return {"seen": replicas.seen, "rows": read, "rates": rates.seen, "told": told, "rounds": rounds}


def _gradient(at: Tensor, rows: list[Any]) -> Tensor:
    """The gradient of the mean over all tokens of these rows."""
    net = model()
    torch.nn.utils.vector_to_parameters(at, net.parameters())
    net(**{name: torch.stack([row[name] for row in rows]) for name in rows[0]}).loss.backward()
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def test_the_last_window_is_one_batch_of_what_is_left(tmp_path: Path) -> None:
    """7 micro-batches: windows of 4 and of 3, one round for each, and the rate of the schedule in both."""
    found = run(2, _trained, str(tmp_path), [14, 14])
    mean = torch.stack([each["seen"][0] for each in found]).mean(0)
    for each in found:
        assert each["rounds"] == [2] and len(each["seen"]) == 2 and len(each["rows"]) == 14
        assert each["rates"] == [(1e-2, 1e-2), (5e-3, 5e-3)] and each["told"] == [1e-2, 5e-3]
        # x(2) = mean of x(1), minus the rate times the gradient at this worker's own x(1)
        by_hand = mean - 5e-3 * _gradient(each["seen"][0], each["rows"][8:])
        torch.testing.assert_close(each["seen"][1], by_hand, atol=1e-6, rtol=0)


def test_workers_of_unequal_length_fill_the_same_windows(tmp_path: Path) -> None:
    """5, 7 and 12 micro-batches: all take two steps, the second from one micro-batch."""
    found = run(3, _trained, str(tmp_path), [10, 14, 24])
    for each in found:
        assert each["rounds"] == [2]
        mean = torch.stack([other["seen"][0] for other in found]).mean(0)
        by_hand = mean - 5e-3 * _gradient(each["seen"][0], each["rows"][8:10])
        torch.testing.assert_close(each["seen"][1], by_hand, atol=1e-6, rtol=0)
    assert not torch.equal(weights(model()), found[0]["seen"][0])
