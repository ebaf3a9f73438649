"""Learning rates of a bucket."""

from __future__ import annotations

import torch

from hf_decentral.optim.bucket import Buckets
from hf_decentral.optim.local import Rates


def test_one_rate_is_a_number_and_several_are_wide_enough() -> None:
    params = [torch.nn.Parameter(torch.ones(3, dtype=torch.float16)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": params[:1], "lr": 1e-8}, {"params": params[1:], "lr": 1e-3}])
    rates, buckets = Rates(optimizer), Buckets(params, 0, 1.0)
    vector = rates.of(buckets, 0, 0)
    assert isinstance(vector, torch.Tensor)
    assert vector.dtype == torch.float32
    assert set(vector.tolist()) == {torch.tensor(1e-8).item(), torch.tensor(1e-3).item(), 1.0}
    assert rates.of(buckets, 0, 1) is vector
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    assert rates.of(buckets, 0, 2) == 0.5
