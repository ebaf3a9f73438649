"""Every algorithm of the table is made of parts that exist."""

from __future__ import annotations

import pytest
import torch

from hf_decentral import averaging, topology
from hf_decentral.algorithms import TABLE, build
from hf_decentral.errors import SettingsError
from hf_decentral.integrations import optimizers
from hf_decentral.optim.plan import make_plan


@pytest.mark.parametrize("name", TABLE)
def test_its_parts_exist(name: str) -> None:
    algorithm = build(name)
    assert optimizers.settings_of(algorithm.optimizer) >= set(algorithm.settings)
    averaging.build(algorithm.averaging)
    topology.build(algorithm.rounds("ring"), 8)
    assert algorithm.summary
    assert "arXiv" in algorithm.source


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("asked", ["ring", "complete"])
def test_its_parts_fit_together(name: str, asked: str) -> None:
    algorithm = build(name)
    how = algorithm.how(asked)
    plan = make_plan(how["topology"], how["order"], how["averaging"], 8, None, 4.0, how["delay"])
    optimizer = optimizers.build(
        algorithm.optimizer, [torch.nn.Parameter(torch.ones(3, 3))], lr=algorithm.lr, **algorithm.settings
    )
    if plan.method.check_optimizer is not None:
        plan.method.check_optimizer(optimizer)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'dpsgd'"):
        build("dpsdg")


def test_another_period() -> None:
    assert build("ldsgd").every(8).rounds("aer") == "every(8, aer)"
    assert build("ldsgd").every(None) == build("ldsgd")
    with pytest.raises(SettingsError, match="period=0"):
        build("ldsgd").every(0)
