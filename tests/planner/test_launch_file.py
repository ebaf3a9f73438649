"""The written launch file is one that Accelerate and this package read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file

from hf_decentral.cli import checks
from hf_decentral.errors import SettingsError
from hf_decentral.integrations import settings
from hf_decentral.planner.advise import Recommendation
from hf_decentral.planner.launch_file import launch_file
from tests.planner.clusters import cluster

SEVERAL = cluster(hosts=4, each=2)


def advice(topology: str, codec: str = "plain") -> Recommendation:
    return Recommendation(topology, codec, "why", 1.5)


def written(text: str, folder: Path) -> Path:
    path = folder / "launch.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("topology", "codec"),
    [("aer", "plain"), ("every(4, hierarchical)", "int8"), ("base_graph(2)", "int4"), ("allreduce", "plain")],
)
def test_accelerate_and_the_package_read_it(topology, codec, tmp_path):
    path = written(launch_file(SEVERAL, advice(topology, codec)), tmp_path)
    config = load_config_from_file(str(path))
    assert (config.num_machines, config.num_processes) == (4, 8)
    [check] = checks.launch_file({}, path)
    assert check.status == "ok", check
    found = settings.resolve({}, {"DECENTRAL_CONFIG": str(path)})
    assert (found.topology, found.averaging) == (topology, codec)


def test_one_machine_and_one_worker(tmp_path):
    for each in (1, 4):
        content = yaml.safe_load(launch_file(cluster(hosts=1, each=each), advice("complete")))
        assert (content["num_machines"], content["num_processes"]) == (1, each)
        assert content["main_process_port"] == 0
        load_config_from_file(str(written(yaml.safe_dump(content), tmp_path)))


def test_a_hook_is_told_where_a_file_cannot_say_it(tmp_path):
    path = written(launch_file(SEVERAL, advice("allreduce", "bf16")), tmp_path)
    assert "DDPCommunicationHookType.BF16" in path.read_text()
    assert settings.resolve({}, {"DECENTRAL_CONFIG": str(path)}).averaging == "plain"


def test_hosts_must_be_even():
    uneven = replace(cluster(hosts=3), cluster=replace(cluster(hosts=3).cluster, hosts=(0, 0, 1)))
    with pytest.raises(SettingsError, match="2,1"):
        launch_file(uneven, advice("aer"))
