from __future__ import annotations

import pytest
import torch

from hf_decentral.bench.rivals import DECENT_TOPOLOGIES
from hf_decentral.bench.variants import TABLE, check, read
from hf_decentral.errors import SettingsError
from tests.processes import run

RIVALS = ("none", "ddp", "ddp:4mb", "ddp_tuned", "ddp_fp16", "ddp_bf16", "ddp_powersgd:2", "post_local_sgd:2")
OURS = ("aer", "every(2, ring)", "complete+plain")
DECENT = ("decent_dp:complete", "decent_dp:ring")
STEPS = 6


@pytest.mark.parametrize("name", [*RIVALS, *OURS, *DECENT, "ddp:0.5mb", "then(complete, 5, aer)+plain"])
def test_a_name_is_read(name):
    assert read(name).name == name
    assert check([name], workers=4)


@pytest.mark.parametrize(
    "name",
    ["ddp:4", "ddp:big", "ddp:", "ddp_tuned:4mb", "ddp_powersgd:0", "post_local_sgd:0", "decent_dp",
     "decent_dp:star", "aer+plain+plain", "rign", "aer+plane", "every(2, rign)", "every(2)", "none:1",
     "+plain", ""],
)  # fmt: skip
def test_what_is_no_variant(name):
    with pytest.raises(SettingsError):
        check([name], workers=4)


def test_a_misspelt_name_offers_the_nearest():
    with pytest.raises(SettingsError, match="mean 'ddp_powersgd'"):
        read("ddp_powersdg")


def test_every_row_says_what_may_stand_behind_its_colon():
    for name, entry in TABLE.items():
        assert (entry.expected == "no argument") == (entry.argument == ""), name


def test_decent_dp_is_called_by_the_names_of_either():
    assert DECENT_TOPOLOGIES["aer"] == DECENT_TOPOLOGIES["alternating-exp-ring"]


def trained(rank: int, names: tuple[str, ...]) -> dict[str, list[float]]:
    """Parameters of a model of one matrix and one bias after some steps, under each variant."""
    from hf_decentral.bench.variants import Setup

    found = {}
    for name in names:
        variant = read(name)
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 6)
        setup = Setup(model, lambda params: torch.optim.SGD(params, lr=0.1), variant.argument, 1, 2)
        loop = variant.entry.make(setup)
        for step in range(STEPS):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
            (loop.called(x) - rank).square().mean().backward()
            if loop.optimizer is not None:
                loop.optimizer.step()
                loop.optimizer.zero_grad()
        loop.settle()
        found[name] = torch.nn.utils.parameters_to_vector(model.parameters()).tolist()
    return found


def test_every_variant_trains_and_keeps_what_it_promises():
    names = (*RIVALS, *OURS, *DECENT)
    first, second = run(2, trained, names)
    for name in names:
        assert all(abs(value) < 10 for value in first[name]), name
        together = first[name] == second[name]
        # DDP in all its forms keeps the workers equal; the others keep them near each other, or not at all.
        assert together == name.startswith("ddp"), name
    near = torch.tensor(first["ddp"])
    for name, tolerance in (("ddp:4mb", 0), ("ddp_tuned", 0), ("ddp_fp16", 1e-2), ("ddp_bf16", 5e-2)):
        torch.testing.assert_close(torch.tensor(first[name]), near, rtol=0, atol=tolerance)
    apart = {name: max(abs(a - b) for a, b in zip(first[name], second[name], strict=True)) for name in names}
    for name in (*OURS, *DECENT, "post_local_sgd:2"):
        assert apart[name] < apart["none"], name
