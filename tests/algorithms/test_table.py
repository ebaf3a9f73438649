"""Every algorithm of the table is made of parts that exist."""

from __future__ import annotations

import pytest

from hf_decentral import averaging, topology
from hf_decentral.algorithms import TABLE, build
from hf_decentral.errors import SettingsError
from hf_decentral.integrations import optimizers


@pytest.mark.parametrize("name", TABLE)
def test_its_parts_exist(name: str) -> None:
    algorithm = build(name)
    assert optimizers.settings_of(algorithm.optimizer) >= set(algorithm.settings)
    averaging.build(algorithm.averaging)
    topology.build(algorithm.rounds("ring"), 8)
    assert algorithm.summary
    assert "arXiv" in algorithm.source


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'dpsgd'"):
        build("dpsdg")


def test_another_period() -> None:
    assert build("ldsgd").every(8).rounds("aer") == "every(8, aer)"
    assert build("ldsgd").every(None) == build("ldsgd")
    with pytest.raises(SettingsError, match="period=0"):
        build("ldsgd").every(0)
