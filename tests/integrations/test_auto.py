"""``topology="auto"``: a trial without exchanges, one choice for all, and checkpoints that hold it."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hf_decentral.cluster.laws import Cluster
from hf_decentral.cluster.measured import Measured, Work, write
from hf_decentral.errors import DecentralizedError, SettingsError
from hf_decentral.integrations import auto
from hf_decentral.integrations.plugin import DecentralizedPlugin
from hf_decentral.integrations.settings import resolve
from hf_decentral.integrations.trial import LEAST, TRIAL, Trial, apart
from hf_decentral.optim import decentralize, gossip
from hf_decentral.planner import Choice
from hf_decentral.transport import Memory
from tests.integrations.loops import WIDTH, Run, accelerator, mean, same
from tests.processes import run
from tests.scripts.launches import environment

pytestmark = pytest.mark.processes


class Told(logging.Handler):
    """Keeps the lines that tell of a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[str] = []
        logger = logging.getLogger("hf_decentral")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("topology auto:"):
            self.choices.append(record.getMessage())


def always(topology: str, averaging: str = "plain") -> None:
    """What this worker would choose, whatever was measured."""

    def choose(measured: Measured, **among: Any) -> Choice:
        assert isinstance(measured, Measured)
        return Choice(topology, averaging, "as the test wants it", 1.5)

    auto.choose = choose


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Rows that depend on the step alone, so that a run can be stopped anywhere."""
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))
    return x, x.sum(1, keepdim=True).tanh()


def steps(r: Run, begin: int, end: int) -> None:
    for step in range(begin, end):
        r.step(*batch(step, r.accelerator.process_index))


def _whole(rank: int) -> dict[str, Any]:
    told, r = Told(), Run("auto")
    handle = gossip(r.optimizer)
    steps(r, 0, 5)
    with r.plugin.averaged(r.model):
        consensus = r.state()
    own = r.state()
    steps(r, 5, TRIAL - 1)
    before = r.plugin.topology, handle.sent_bytes
    steps(r, TRIAL - 1, TRIAL)
    after = [p.detach().clone() for p in r.model.parameters()]
    steps(r, TRIAL, TRIAL + 9)
    return {
        "own": own,
        "consensus": consensus,
        "before": before,
        "after": after,
        "chosen": (r.plugin.topology, r.plugin.averaging),
        "built": (handle.topology.name, handle.plan.averaging),
        "asked": r.plugin.settings.topology,
        "steps": handle.step,
        "sent": handle.sent_bytes,
        "told": told.choices,
    }


def test_workers_train_apart_meet_and_go_on_with_one_choice() -> None:
    results = run(3, _whole)
    assert not same(results[0]["own"], results[1]["own"])
    expected = mean([r["own"] for r in results])
    for r in results:
        for name, value in expected.items():
            torch.testing.assert_close(r["consensus"][name], value)  # also while nothing is sent
        assert r["before"] == ("auto", 0)
        assert all(torch.equal(p, q) for p, q in zip(r["after"], results[0]["after"], strict=True))
        assert r["chosen"] == r["built"] == results[0]["chosen"] and r["asked"] == "auto"
        assert r["steps"] == TRIAL + 9 and r["sent"] > 0
    assert [len(r["told"]) for r in results] == [1, 0, 0]
    assert "All-Reduce would take" in results[0]["told"][0] and " ms a step" in results[0]["told"][0]


def _differing(rank: int) -> tuple[str, str]:
    r = Run("auto")
    always(("ring", "complete", "one_peer_exponential")[rank], ("int8", "plain", "bf16")[rank])
    steps(r, 0, TRIAL + 3)
    return r.plugin.topology, gossip(r.optimizer).plan.averaging


def test_worker_0_chooses_for_workers_that_measured_something_else() -> None:
    assert run(3, _differing) == [("ring", "int8")] * 3


END, STOPS = TRIAL + 8, (4, TRIAL - 1, TRIAL, TRIAL + 5)


def _through(rank: int, folder: str, averaging: str) -> dict[str, Tensor]:
    always("ring", averaging)
    r = Run("auto", name="accumadamw")
    for step in range(END):
        if step in STOPS:
            r.accelerator.save_state(f"{folder}/{step}")
        steps(r, step, step + 1)
    return r.state()


def _again(rank: int, folder: str, stop: int, before: int, averaging: str) -> tuple[str, dict[str, Tensor]]:
    always("complete", "bf16")
    r = Run("auto", name="accumadamw", seed=50)
    steps(r, 0, before)  # in a trial of its own, or beyond it
    r.accelerator.load_state(f"{folder}/{stop}")
    loaded = r.plugin.topology
    always("ring", averaging)
    steps(r, stop, END)
    return loaded, r.state()


@pytest.mark.parametrize("averaging", ["int4", "plain"])
def test_a_resumed_run_is_bitwise_the_one_that_was_never_stopped(tmp_path: Path, averaging: str) -> None:
    folder = str(tmp_path)
    whole = run(2, _through, folder, averaging)
    for stop, before in ((4, 2), (4, TRIAL + 1), (TRIAL, 0), (TRIAL + 5, 3), (TRIAL + 5, TRIAL + 2)):
        manifest = json.loads((tmp_path / str(stop) / "decentral.json").read_text())
        chosen = stop >= TRIAL
        assert manifest["topology"] == ("ring" if chosen else "auto")
        assert manifest["averaging"] == (averaging if chosen else "plain")
        for before_it, (loaded, state) in zip(
            whole, run(2, _again, folder, stop, before, averaging), strict=True
        ):
            assert loaded == ("ring" if chosen else "auto")
            assert same(before_it, state), (stop, before)


def _late(rank: int, folder: str) -> tuple[str, str, int]:
    r = Run("auto", name="accumadamw")
    always("ring", "int8")
    r.accelerator.load_state(folder)
    steps(r, 0, LEAST - 1)
    before = r.plugin.topology
    steps(r, 0, 1)
    return before, r.plugin.topology, gossip(r.optimizer).step


def test_a_trial_that_is_resumed_near_its_end_times_some_steps_more(tmp_path: Path) -> None:
    run(2, _through, str(tmp_path), "plain")
    found = run(2, _late, str(tmp_path / str(TRIAL - 1)))
    assert found == [("auto", "ring", TRIAL - 1 + LEAST)] * 2


def _elsewhere(rank: int, folder: str) -> tuple[str, int, str, int]:
    always("complete", "plain")
    r = Run("auto", name="accumadamw")
    steps(r, 0, TRIAL + 1)
    r.accelerator.load_state(folder)
    loaded, step = r.plugin.topology, gossip(r.optimizer).step
    always("one_peer_exponential", "bf16")
    steps(r, 0, TRIAL + 2)
    return loaded, step, f"{r.plugin.topology} {gossip(r.optimizer).plan.averaging}", gossip(r.optimizer).step


def test_another_number_of_workers_chooses_anew(tmp_path: Path) -> None:
    run(2, _through, str(tmp_path), "int4")
    folder, at = str(tmp_path / str(TRIAL + 5)), TRIAL + 5
    assert run(3, _elsewhere, folder) == [("auto", at, "one_peer_exponential bf16", at + TRIAL + 2)] * 3
    assert run(1, _elsewhere, folder) == [("complete", at, "complete plain", at + TRIAL + 2)]


def _other_run(rank: int, folder: str, topology: str, settings: dict[str, Any]) -> str:
    r = Run(topology, name="accumadamw", **settings)
    try:
        r.accelerator.load_state(folder)
    except DecentralizedError as error:
        return str(error)
    steps(r, 0, 2)
    return r.plugin.topology


def test_which_runs_a_checkpoint_is_one_of(tmp_path: Path) -> None:
    run(2, _through, str(tmp_path), "int4")
    trial, after = str(tmp_path / "4"), str(tmp_path / str(TRIAL + 5))
    for folder, topology, settings, expected in (
        (trial, "ring", {}, "the topology"),
        (after, "ring", {"averaging": "int4"}, "ring"),
        (after, "aer", {"averaging": "int4"}, "the topology"),
        (after, "auto", {"averaging": "int8"}, "averaging 'int4'"),
        (after, "auto", {"algorithm": "ldsgd"}, "the topology"),
    ):
        for said in run(2, _other_run, folder, topology, settings):
            assert expected in said, (topology, settings)


def _alone(rank: int) -> tuple[list[str], str]:
    told, r = Told(), Run("auto")
    steps(r, 0, TRIAL + 2)
    return told.choices, r.plugin.topology


def test_one_worker_has_nothing_to_plan() -> None:
    [(told, topology)] = run(1, _alone)
    assert len(told) == 1 and "nothing to plan" in told[0] and topology == "complete"


def _hindered(rank: int) -> dict[str, Any]:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=1000)
    r = Run("auto", scaler=scaler, gradient_accumulation_steps=2)
    names = []
    for step in range(2 * TRIAL + 4):
        x, y = batch(step, rank)
        if step in (6, 7) and rank == 1:
            x[0, 0] = float("inf")
        r.step(x, y)
        names.append(r.plugin.topology)
        if step == 9:
            with r.plugin.averaged(r.model):
                r.model.eval()
                r.model(x)
                r.model.train()
    return {"names": names, "finite": all(bool(p.isfinite().all()) for p in r.model.parameters())}


def test_accumulation_skipped_steps_and_evaluations_do_not_hinder_it() -> None:
    for r in run(2, _hindered):
        assert r["finite"]
        assert set(r["names"][: 2 * TRIAL - 1]) == {"auto"} and r["names"][2 * TRIAL - 1] != "auto"


def _two(rank: int, larger_steps: bool) -> dict[str, Any]:
    """As a GAN: the second model's pass is pending while the first one's optimizer steps."""
    a = accelerator()
    plugin = DecentralizedPlugin(topology="auto").attach(a)
    torch.manual_seed(rank)
    small, large = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4))
    of_small, of_large = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (small, large))
    small, large, of_small, of_large = a.prepare(small, large, of_small, of_large)
    seen: list[tuple[str, str]] = []
    while len(seen) < 4 * TRIAL + 2:
        pending = small(torch.randn(3, 4))
        if larger_steps:
            large(pending.detach()).square().mean().backward()
            of_large.step()
        (pending - 1).square().mean().backward()
        of_small.step()
        for optimizer in (of_small, of_large):
            optimizer.zero_grad()
        seen.append((gossip(of_large).topology.name, gossip(of_small).topology.name))
    return {"seen": seen, "topology": plugin.topology}


@pytest.mark.parametrize("larger_steps", [True, False])
def test_two_optimizers_go_on_with_one_plan(larger_steps: bool) -> None:
    for r in run(2, _two, larger_steps):
        chosen, seen = r["topology"], r["seen"]
        assert chosen != "auto"
        if larger_steps:
            assert seen[TRIAL - 2] == ("auto", "auto")
            assert set(seen[TRIAL - 1 :]) == {(chosen, chosen)}
        else:  # nobody waits for ever for the one with the most parameters
            assert seen[4 * TRIAL - 2] == ("auto", "auto") and set(seen[4 * TRIAL - 1 :]) == {
                ("auto", chosen)
            }


def _measured(workers: int, hosts: tuple[int, ...], link: str = "100mbit", compute: str = "0.1") -> Measured:
    cluster = Cluster(compute=compute, hosts=hosts, link=link, latency=1e-4, inside="10gbit")
    return Measured(workers, cluster, Work(4e6))


def _with_file(rank: int, file: str, settings: dict[str, Any]) -> dict[str, Any]:
    told = Told()
    try:
        r = Run("auto", cluster=file, **settings)
    except DecentralizedError as error:
        return {"error": str(error)}
    first, weights = r.plugin.topology, [p.detach().clone() for p in r.model.parameters()]
    steps(r, 0, 3)
    handle = gossip(r.optimizer)
    return {
        "first": first,
        "last": handle.topology.name,
        "weights": weights,
        "told": told.choices,
        "error": "",
    }


def test_what_was_calibrated_is_planned_from_at_once(tmp_path: Path) -> None:
    write(tmp_path / "cluster.json", _measured(2, (0, 0)))
    results = run(2, _with_file, str(tmp_path / "cluster.json"), {})
    for r in results:
        assert not r["error"] and r["first"] == r["last"] != "auto"
        assert all(torch.equal(p, q) for p, q in zip(r["weights"], results[0]["weights"], strict=True))
    assert [len(r["told"]) for r in results] == [1, 0]


@pytest.mark.parametrize(
    ("measured", "settings", "expected"),
    [
        (_measured(3, (0, 0, 0)), {}, "describes 3 workers on 1 host, and this run has 2 workers on 1 host"),
        (_measured(2, (0, 1)), {}, "2 workers on 2 hosts (1 + 1), and this run has 2 workers on 1 host"),
        (_measured(2, (0, 0)), {"hosts": "1,1"}, "and this run has 2 workers on 2 hosts (1 + 1)"),
    ],
)
def test_the_file_of_another_cluster_is_refused(
    tmp_path: Path, measured: Measured, settings: dict[str, Any], expected: str
) -> None:
    write(tmp_path / "cluster.json", measured)
    for r in run(2, _with_file, str(tmp_path / "cluster.json"), settings):
        assert expected in r["error"] and "cluster.json" in r["error"]


def _one_lacks_it(rank: int, file: str) -> str:
    return str(_with_file(rank, file if rank else "nothing.json", {})["error"])


def test_a_file_that_one_worker_lacks_is_told_to_all(tmp_path: Path) -> None:
    write(tmp_path / "cluster.json", _measured(2, (0, 0)))
    said = run(2, _one_lacks_it, str(tmp_path / "cluster.json"))
    assert "nothing.json cannot be read" in said[0] and "(worker 0: nothing.json cannot be read" in said[1]


def _choose_among(settings: dict[str, Any], measured: Measured) -> auto.Chosen:
    """What four workers of one process choose."""
    params = [torch.nn.Parameter(torch.zeros(4, 10))]
    optimizer = torch.optim.SGD(params, lr=0.1)
    found = resolve({"topology": "auto", **settings}, {})
    chooser = auto.Auto(found, 4, True)
    model = nn.Module()
    decentralize(
        optimizer, apart("auto", 4), model=model, order=found.order, delay=found.delay, transport=Memory(4)
    )
    trial = Trial(optimizer, None, lambda trial: None)
    return chooser._best(measured, trial)


@pytest.mark.parametrize(
    ("settings", "topology", "averaging"),
    [
        ({"averaging": "int8"}, r".+", "int8"),
        ({"averaging": "plain"}, r".+", "plain"),
        ({"averaging": "gradient_tracking", "order": "atc"}, r".+", "gradient_tracking"),
        ({"delay": 3}, r"every\(4, \w+\)", ".+"),
        ({"algorithm": "ldsgd", "period": 5}, r"every\(5, \w+\)", "plain"),
        ({"algorithm": "choco"}, r".+", "choco"),
        ({"algorithm": "d2"}, r"lazy\(.+\)", "d2"),
        ({"algorithm": "consensus_control"}, r"above\(0.1, \w+\)", "plain"),
        ({"algorithm": "osgp"}, r".+", "push_sum"),
        ({"hosts": "2,2"}, r".+", ".+"),
    ],
)
def test_what_was_asked_for_stays(settings: dict[str, Any], topology: str, averaging: str) -> None:
    hosts = (0, 0, 1, 1) if "hosts" in settings else (0, 1, 2, 3)
    chosen = _choose_among(settings, _measured(4, hosts))
    assert re.fullmatch(topology, chosen.topology) and re.fullmatch(averaging, chosen.averaging), chosen


def test_it_says_where_all_reduce_is_the_better_choice() -> None:
    slow = _choose_among({}, _measured(4, (0, 1, 2, 3), "100mbit", "lognormal(0.1, 0.1)"))
    assert "next time" not in slow.why and "times as fast as All-Reduce" in slow.why
    quick = _choose_among({}, _measured(4, (0, 0, 0, 0), "none", "10"))
    assert "launch with --topology allreduce next time" in quick.why


def test_settings_with_which_nothing_goes_are_refused_before_the_first_step() -> None:
    for settings in ({"averaging": "scalecom", "delay": 2}, {"averaging": "gradient_tracking"}):
        with pytest.raises(SettingsError, match="topology='auto' was given with"):
            _choose_among(settings, _measured(4, (0, 1, 2, 3)))


_SCRIPT = """
import logging, os, sys, torch
from accelerate import Accelerator
from hf_decentral import DecentralizedPlugin
logging.basicConfig(level=logging.INFO, format="%(message)s")
accelerator = Accelerator(cpu=True)
plugin = DecentralizedPlugin().attach(accelerator)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(16):
    accelerator.backward(model(torch.randn(4, 8)).square().mean())
    optimizer.step()
    optimizer.zero_grad()
chosen = f"{plugin.topology} {plugin.averaging}"
with open(f"chosen_{accelerator.process_index}", "w") as file:  # two workers' prints may mix
    file.write(chosen)
accelerator.end_training()
"""


@pytest.mark.parametrize("place", ["environment", "launch file"])
def test_a_launched_script(tmp_path: Path, place: str) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    config = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "num_processes": 2,
              "num_machines": 1, "machine_rank": 0, "mixed_precision": "no", "rdzv_backend": "static",
              "same_network": True, "gpu_ids": "all", "use_cpu": False, "main_process_port": 0}  # fmt: skip
    env = environment(GLOO_SOCKET_IFNAME="lo")
    if place == "environment":
        env["DECENTRAL_TOPOLOGY"] = "auto"
    else:
        config["mpirun_config"] = {"decentral_topology": "auto"}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "c.yaml"]
    ran = subprocess.run(
        [*launch, "train.py"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    chose = [(tmp_path / f"chosen_{worker}").read_text() for worker in range(2)]
    assert chose[0] == chose[1] and "auto" not in chose[0], ran.stdout
    assert ran.stderr.count("topology auto: ") == 1


def _ordered(rank: int, order: str) -> dict[str, Any]:
    always("ring", "bf16")
    r = Run("auto", order=order)
    steps(r, 0, TRIAL)
    r.model.eval()  # with "cta" a pass combines
    r.model(batch(0, rank)[0])
    r.model.train()
    steps(r, TRIAL, TRIAL + 4)
    plan = gossip(r.optimizer).plan
    return {"plan": (plan.topology.name, plan.averaging, plan.order.value), "sent": r.plugin.sent_bytes}


@pytest.mark.parametrize("order", ["atc", "cta"])
def test_the_order_stays(order: str) -> None:
    for r in run(2, _ordered, order):
        assert r["plan"] == ("ring", "bf16", order) and r["sent"] > 0
