"""The algorithms of the literature under a real Accelerator, by name."""

from __future__ import annotations

import math

import pytest

from hf_decentral import DecentralizedPlugin
from hf_decentral.algorithms import TABLE, build
from hf_decentral.errors import SettingsError
from hf_decentral.integrations.settings import resolve
from hf_decentral.topology import build as build_topology
from tests.integrations.loops import accelerator, data, model
from tests.processes import run

STEPS, WORKERS = 10, 4
REAL = [name for name, algorithm in TABLE.items() if not algorithm.alone]


def trained(worker: int) -> dict[str, tuple[list[float], float, float]]:
    import torch

    found = {}
    for name in REAL:
        accelerate = accelerator()
        topology = "ring" if build(name).chooses else None
        plugin = DecentralizedPlugin(topology, algorithm=name).attach(accelerate)
        net = model()
        optimizer = plugin.optimizer(net, lr=0.01)
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        net, optimizer, loader = accelerate.prepare(net, optimizer, loader)
        losses = []
        for _ in range(STEPS):
            for x, y in loader:
                loss = (net(x) - y).square().mean()
                accelerate.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(float(loss))
        found[name] = losses, plugin.distance(), plugin.sent_bytes
        informed = plugin.handles[0].plan.method.informed
        assert not informed or plugin.handles[0].loss == losses[-1], name
    return found


def test_each_trains_on_real_processes() -> None:
    for result in run(WORKERS, trained):
        for name, (losses, distance, sent) in result.items():
            assert sum(losses[-4:]) < sum(losses[:4]), name
            assert math.isfinite(distance), name
            assert sent > 0, name


def test_an_algorithm_says_what_was_not_given() -> None:
    found = resolve({"algorithm": "slowmo"}, {})
    assert (found.topology, found.order, found.averaging) == ("every(16, complete)", "atc", "slowmo")
    assert "topology=every(16, complete) (algorithm slowmo)" in found.describe()
    found = resolve({"algorithm": "oldsgd", "topology": "ring", "period": 8}, {})
    assert "every(8, " in found.topology
    assert (found.delay, found.order) == (8, "awc")
    found = resolve({"algorithm": "dpsgd", "order": "cta"}, {"DECENTRAL_TOPOLOGY": "complete"})
    assert (found.topology, found.order) == ("complete", "cta")


@pytest.mark.parametrize("name", REAL)
def test_its_settings_are_those_of_a_plan(name: str) -> None:
    found = resolve({"algorithm": name}, {})
    assert build_topology(found.topology, 8).workers == 8


@pytest.mark.parametrize("name", [name for name, algorithm in TABLE.items() if algorithm.alone])
def test_an_algorithm_without_a_global_step_says_why(name: str) -> None:
    with pytest.raises(SettingsError, match="Expected one with a step"):
        resolve({"algorithm": name}, {})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"algorithm": "dpsdg"}, "Did you mean 'dpsgd'"),
        ({"algorithm": "slowmo", "topology": "ring"}, r"xpected its own rounds, 'every\(16, complete\)'"),
        ({"algorithm": "dadam", "topology": "allreduce"}, "All-Reduce is the stock"),
        ({"algorithm": "ldsgd", "period": 0}, "period=0"),
        ({"algorithm": "dpsgd", "period": 8}, "with a period of its own"),
        ({"topology": "ring", "period": 8}, r"every\(8, ring\)"),
        ({"delay": -1}, "delay=-1"),
    ],
)
def test_what_cannot_be_meant(given: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        resolve(given, {})


def test_what_a_weaker_place_says_yields_to_an_algorithm() -> None:
    """The launch files of this package name a topology, which must not keep a flag from being meant."""
    environment = {"DECENTRAL_TOPOLOGY": "aer", "DECENTRAL_ORDER": "awc"}
    found = resolve({"algorithm": "local_sgd"}, environment)
    assert (found.topology, found.order) == ("every(4, complete)", "atc")
    assert "topology=every(4, complete) (algorithm local_sgd)" in found.describe()
    found = resolve({"algorithm": "dpsgd"}, environment)
    assert (found.topology, found.order) == ("aer", "atc")
    found = resolve({}, {**environment, "DECENTRAL_ALGORITHM": "dpsgd"})
    assert (found.topology, found.order) == ("aer", "awc")
    assert resolve({"algorithm": "slowmo", "topology": "complete"}, {}).topology == "every(16, complete)"


def test_an_algorithm_brings_its_rate_unless_one_is_given() -> None:
    plugin, net = DecentralizedPlugin("ring", algorithm="sgp"), model()
    assert plugin.optimizer(net).param_groups[0]["lr"] == TABLE["sgp"].lr
    assert plugin.optimizer(net, lr=0.5).param_groups[0]["lr"] == 0.5
    assert plugin.optimizer(net, "adam").param_groups[0]["lr"] == 0.001  # the rate of another optimizer


def test_a_topology_made_by_the_script() -> None:
    ring = build_topology("ring", 4)
    assert DecentralizedPlugin(ring, algorithm="dpsgd").topology == "ring"
    with pytest.raises(SettingsError, match="made by the script"):
        DecentralizedPlugin(ring, algorithm="ldsgd")
