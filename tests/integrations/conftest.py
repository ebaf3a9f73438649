"""Let the server from which test processes are forked import Accelerate once, not each of them."""

from __future__ import annotations

from tests import processes

processes._context.set_forkserver_preload(
    ["torch", "torch.distributed", "hf_decentral.optim", "hf_decentral.integrations.plugin"]
)
