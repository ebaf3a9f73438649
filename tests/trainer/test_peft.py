"""LoRA adapters of PEFT: they alone travel, are saved, and are gone on with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from accelerate.utils import load as load_plain
from safetensors.torch import load_file
from torch import Tensor
from transformers import TrainerCallback

from hf_decentral.trainer import DecentralizedTrainer, DecentralizedTrainingArguments
from tests.processes import run
from tests.trainer.runs import Rows, model, settings

pytestmark = pytest.mark.processes
Adapter = dict[str, Tensor]
SAVING = {"save_strategy": "steps", "save_steps": 3}


def _adapter(module: Any) -> Adapter:
    return {name: value.clone() for name, value in peft.get_peft_model_state_dict(module).items()}


class Adapters(TrainerCallback):
    """Keeps this worker's adapter after every step."""

    decides_alike = True

    def __init__(self) -> None:
        self.seen: list[Adapter] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.seen.append(_adapter(model))


def _trainer(folder: str, **changed: Any) -> tuple[DecentralizedTrainer, Adapters]:
    lora = peft.LoraConfig(
        r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    adapters = Adapters()
    given = {"topology": "aer", "optim": "accumadam", "accum": 2, **changed}
    made = DecentralizedTrainer(
        peft.get_peft_model(model(), lora), DecentralizedTrainingArguments(**settings(folder, **given)),
        train_dataset=Rows(), eval_dataset=Rows(9), callbacks=[adapters],
    )  # fmt: skip
    return made, adapters


def _trained(rank: int, folder: str, topology: str, resume: bool) -> dict[str, Any]:
    made, adapters = _trainer(folder, topology=topology, **SAVING)
    frozen = {n: p.detach().clone() for n, p in made.model.named_parameters() if not p.requires_grad}
    trained = [p for p in made.model.parameters() if p.requires_grad]
    made.train(resume_from_checkpoint=resume)
    made.save_model(str(Path(folder) / "adapter"))
    after = dict(made.model.named_parameters())
    return {
        "kept": all(torch.equal(value, after[name]) for name, value in frozen.items()),
        "bytes": sum(p.numel() * p.element_size() for p in trained),
        "sent": made.plugin.sent_bytes,
        "adapters": [*adapters.seen, _adapter(made.model)],
    }


def _close_to_the_mean(file: Path, workers: list[Adapter]) -> None:
    saved = load_file(file)
    assert saved.keys() == workers[0].keys()
    for name, value in saved.items():
        mean = torch.stack([adapter[name] for adapter in workers]).mean(0)
        torch.testing.assert_close(value, mean, atol=1e-6, rtol=0)


@pytest.mark.parametrize("topology", ["aer", "complete"])
def test_adapters_alone_travel_and_are_saved_and_gone_on_with(tmp_path: Path, topology: str) -> None:
    whole = run(2, _trained, str(tmp_path / "whole"), topology, False)
    for found in whole:
        assert found["kept"]
        # The first round goes out before the first step, the others after each of the six.
        assert found["sent"] == 7 * found["bytes"]
    first, second = (found["adapters"] for found in whole)
    for step, folder in ((3, "checkpoint-3"), (6, "adapter")):
        assert any(not torch.equal(first[step - 1][name], second[step - 1][name]) for name in first[0])
        _close_to_the_mean(
            tmp_path / "whole" / folder / "adapter_model.safetensors", [first[step - 1], second[step - 1]]
        )

    held = load_plain(tmp_path / "whole" / "checkpoint-3" / "decentral_worker_1.pt")["models"][0]
    assert held and all("lora_" in name for name in held)

    shutil.copytree(tmp_path / "whole" / "checkpoint-3", tmp_path / "stopped" / "checkpoint-3")
    again = run(2, _trained, str(tmp_path / "stopped"), topology, True)
    for before, after in zip(whole, again, strict=True):
        assert len(after["adapters"]) == 4  # steps 4, 5, 6, and the consensus
        for a, b in zip(before["adapters"][3:], after["adapters"], strict=True):
            assert all(torch.equal(a[name], b[name]) for name in a)


def _best(rank: int, folder: str) -> tuple[Adapter, str, float, list[float]]:
    made, _ = _trainer(
        folder, save_strategy="steps", save_steps=1, eval_strategy="steps", eval_steps=1, save_total_limit=1,
        load_best_model_at_end=True, learning_rate=3.0, lr_scheduler_type="constant", optim="dadamw",
    )  # fmt: skip
    made.train()
    told = [line["eval_loss"] for line in made.state.log_history if "eval_loss" in line]
    loss = made.evaluate()["eval_loss"]
    return _adapter(made.model), str(made.state.best_model_checkpoint), loss, told


def test_the_best_adapter_is_loaded_at_the_end(tmp_path: Path) -> None:
    found = run(2, _best, str(tmp_path))
    for adapter, folder, loss, told in found:
        assert min(told) < told[-1] and abs(loss - min(told)) < 1e-6
        saved = load_file(Path(folder) / "adapter_model.safetensors")
        assert all(torch.equal(adapter[name], value) for name, value in saved.items())
