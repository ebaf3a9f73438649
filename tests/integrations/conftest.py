"""Let the server from which test processes are forked import what is slow once, not each of them.

Every torch optimizer imports ``torch._dynamo`` when it is made: seconds, in every process.
"""

from __future__ import annotations

from tests import processes

processes._context.set_forkserver_preload(
    ["torch", "torch.distributed", "torch._dynamo", "hf_decentral.optim", "hf_decentral.integrations.plugin"]
)
