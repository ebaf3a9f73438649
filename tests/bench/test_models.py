from __future__ import annotations

import time

import pytest
import torch

from hf_decentral.bench import models
from hf_decentral.bench.settings import Settings
from hf_decentral.errors import SettingsError

CPU = torch.device("cpu")


def test_an_emulated_step_takes_its_time_and_gives_gradients():
    model = models.Emulated(seconds=0.06, parameters=250_000)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(250_000, rel=0.01)
    assert all(p.dim() == 2 for p in model.parameters())
    inputs = models.batch(Settings(emulate_ms=60), 0, CPU)
    began = time.perf_counter()
    loss = model(**inputs).loss
    forward = time.perf_counter() - began
    loss.backward()
    # sleeping is never shorter than asked for; that it is not much longer no test can promise
    assert forward >= 0.02
    assert time.perf_counter() - began >= 0.06
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_the_size_of_an_emulated_model_is_told_exactly():
    settings = Settings(emulate_ms=1, emulate_mb=0.2)
    held = sum(4 * p.numel() for p in models.build(settings).parameters())
    assert models.parameter_bytes(settings) == held == pytest.approx(200_000, rel=0.02)


def test_gradients_are_not_shared():
    model = models.Emulated(0.0, 10_000)
    model(torch.zeros(1)).loss.backward()
    assert len({p.grad.data_ptr() for p in model.parameters() if p.grad is not None}) == models.LAYERS


@pytest.mark.parametrize("name", ["gpt2-nano", "gpt2-tiny", "resnet-50"])
def test_real_models_train_on_their_batch(name):
    settings = Settings(model=name, batch_size=2, block_size=8)
    model = models.build(settings)
    model(**models.batch(settings, 0, CPU)).loss.backward()
    assert models.parameter_bytes(settings) == sum(4 * p.numel() for p in model.parameters())
    assert any(p.grad is not None for p in model.parameters())


def test_the_sizes_of_gpt2_are_the_published_ones():
    for name, millions in (("gpt2-small", 124), ("gpt2-medium", 355), ("gpt2-large", 774), ("gpt2-xl", 1558)):
        assert models.parameter_bytes(Settings(model=name)) / 4e6 == pytest.approx(millions, rel=0.005)


def test_resnet_50_has_its_published_size():
    assert models.parameter_bytes(Settings(model="resnet-50")) / 4e6 == pytest.approx(25.6, rel=0.01)


def test_workers_have_one_model_and_data_of_their_own():
    settings = Settings(model="gpt2-nano", block_size=8)
    first, second = (torch.nn.utils.parameters_to_vector(models.build(settings).parameters()) for _ in "ab")
    assert torch.equal(first, second)
    rows = [models.batch(settings, worker, CPU)["input_ids"] for worker in (0, 1, 0)]
    assert torch.equal(rows[0], rows[2]) and not torch.equal(rows[0], rows[1])


def test_an_unknown_model_offers_the_nearest():
    with pytest.raises(SettingsError, match="gpt2-small"):
        models.build(Settings(model="gpt2-smal"))


def test_who_is_slow_and_when():
    def slow(settings: Settings, worker: int) -> list[float]:
        return [models.slowdown(settings, worker, step) for step in range(1000)]

    assert set(slow(Settings(emulate_ms=1), 0)) == {1.0}
    some = Settings(emulate_ms=1, jitter=0.25, slowdown=1.5)
    assert set(slow(some, 0)) == {1.0, 1.5}
    assert slow(some, 0) == slow(some, 0) != slow(some, 1)
    assert slow(some, 0).count(1.5) == pytest.approx(250, abs=60)
    assert slow(Settings(emulate_ms=1, jitter=0.25, seed=1), 0) != slow(
        Settings(emulate_ms=1, jitter=0.25), 0
    )
    one = Settings(emulate_ms=1, slow_worker=2)
    assert set(slow(one, 2)) == {1.3} and set(slow(one, 1)) == {1.0}
    sometimes = Settings(emulate_ms=1, slow_worker=2, jitter=0.5)
    assert set(slow(sometimes, 2)) == {1.0, 1.3} and set(slow(sometimes, 1)) == {1.0}
