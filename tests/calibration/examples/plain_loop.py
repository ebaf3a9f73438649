"""A loop under Accelerate that knows nothing of this package, and saves on its way."""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator


def main(folder, steps, every):
    accelerator = Accelerator()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    small = torch.nn.Linear(1, 1)
    optimizer, other = torch.optim.AdamW(model.parameters()), torch.optim.SGD(small.parameters(), lr=0.1)
    model, small, optimizer, other = accelerator.prepare(model, small, optimizer, other)
    # The rows of a worker depend on its number: with gradients averaged all would have the same parameters.
    rows = torch.randn(8, 64, generator=torch.Generator().manual_seed(accelerator.process_index))
    for step in range(steps):
        loss = small(model(rows)).square().mean()
        accelerator.backward(loss)
        for each in (other, optimizer):
            each.step()
            each.zero_grad()
        if step % every == 0:
            accelerator.save_state(f"{folder}/state")
            torch.save(model.state_dict(), f"{folder}/model.pt")
    (Path(folder) / f"ended_{accelerator.process_index}").touch()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
