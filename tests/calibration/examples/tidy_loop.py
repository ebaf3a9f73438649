"""A loop with trackers that evaluates in its first steps, or in all, and tidies up in a ``finally``."""

import sys

import torch
from accelerate import Accelerator


def main(folder, steps, evaluated):
    accelerator = Accelerator(log_with="tensorboard", project_dir=folder)
    accelerator.init_trackers("measured", {"steps": steps})
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    try:
        for step in range(steps):
            if step < evaluated:
                model.eval()
                model(torch.randn(8, 64))
                model.train()
            loss = model(torch.randn(8, 64)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.log({"loss": loss.item()}, step=step)
    finally:
        accelerator.end_training()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
