"""The worker's side: alternating blocks of steps, and what each of them took."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
import torch.distributed as dist
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler import record_function
from tqdm import tqdm

from hf_decentral.bench import models
from hf_decentral.bench.counters import Peak, sent_counter, tensors_in_pages
from hf_decentral.bench.settings import Settings
from hf_decentral.bench.variants import BUCKETS, Loop, Setup, Variant, check
from hf_decentral.bench.world import World, join
from hf_decentral.errors import LaunchError
from hf_decentral.errors.bench import rival_failed
from hf_decentral.optim import Gossip

COPIES = 5
"""Parameters, gradients, Adam's two moments and a receive buffer, in units of the parameters' bytes."""
_FIRST_STEPS = 3  # after building: DDP rebuilds its buckets, PowerSGD begins to compress
_PROBE_MB = 0.05


class Sample(NamedTuple):
    """One block of a variant on one worker, per step.

    Attributes:
        seconds: of a step.
        sent_bytes: of this worker's share of its host; None where nobody counts.
        waited_seconds: for others; None where the variant does not count.
    """

    seconds: float
    sent_bytes: float | None
    waited_seconds: float | None


@dataclass
class Found:
    """What one worker found of one variant.

    Attributes:
        held_bytes: the most memory that it held in a step.
        samples: one for each counted block.
        notes: what else is told of it, such as the bucket size that was found.
    """

    held_bytes: int = 0
    samples: list[Sample] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


class Trainee:
    """A fresh model that trains under a variant.

    Args:
        variant: how.
        settings: the model, and who is slow when.
        world: where.
    """

    def __init__(self, variant: Variant, settings: Settings, world: World) -> None:
        def optimizer(params: Any) -> torch.optim.Optimizer:
            if settings.memory:
                return torch.optim.SGD(params, lr=0.0, foreach=True)
            return torch.optim.AdamW(params, lr=1e-4)

        self._settings = settings
        self._worker = world.worker
        self._model = models.build(settings).to(world.device)
        self._inputs = models.batch(settings, world.worker, world.device)
        setup = Setup(
            self._model, optimizer, variant.argument, world.workers_per_host, world.workers, settings.apart
        )
        self.loop: Loop = variant.entry.make(setup)

    def step(self, number: int) -> None:
        """Take a training step; the number says who is slow in it."""
        if isinstance(self._model, models.Emulated):
            self._model.slowdown = models.slowdown(self._settings, self._worker, number)
        with record_function("hf_decentral: compute"):
            self.loop.called(**self._inputs).loss.backward()
        if self.loop.optimizer is not None:
            self.loop.optimizer.step()
            self.loop.optimizer.zero_grad()


class Bench:
    """The variants that can train here, and their blocks.

    Args:
        settings: what to measure.
        world: with whom.
    """

    def __init__(self, settings: Settings, world: World) -> None:
        self.settings = settings
        self.world = world
        self.left_out: dict[str, str] = {}
        self._sent = sent_counter(world.shaped, world.worker % world.workers_per_host, dist.get_backend())
        self._kept: dict[str, Trainee] = {}
        self._variants = [v for v in check(settings.names, world.workers) if self._trains(v)]
        self.found = {variant.name: Found() for variant in self._variants}

    def _trains(self, variant: Variant) -> bool:
        """Try a variant on a tiny model, which also loads what it needs, before memory is measured."""
        tiny = replace(self.settings, emulate_ms=1e-3, emulate_mb=_PROBE_MB)
        problem: LaunchError | None = None
        try:
            trainee = Trainee(variant, tiny, self.world)
            for number in range(_FIRST_STEPS):
                trainee.step(number)
            trainee.loop.settle()
        except LaunchError as error:
            problem = error
        except Exception as error:
            if not variant.foreign:
                raise
            problem = rival_failed(variant.name, error)
        self.world.together()
        if problem is not None:
            self.left_out[variant.name] = str(problem)
        return problem is None

    def tune(self) -> None:
        """Find the bucket size that serves DDP best, where that is asked for. Collective."""
        for k, variant in enumerate(self._variants):
            if variant.name != "ddp_tuned":
                continue
            seconds = {}
            for bucket in BUCKETS:
                tried = Trainee(replace(variant, argument=bucket), self.settings, self.world)
                own = self._block(tried, 0, fresh=True).seconds
                seconds[bucket] = max(self.world.gather(own))
                del tried
            best = min(seconds, key=lambda bucket: seconds[bucket])
            self._variants[k] = replace(variant, argument=best)
            self.found[variant.name].notes.update(bucket=best, tried_seconds=seconds)

    def first(self) -> None:
        """Build every variant and take its first steps, and see what memory it takes. Collective."""
        keep = self._room_for_all()
        for variant in self._variants:
            with tensors_in_pages():
                self.found[variant.name].held_bytes = self._held(variant, keep)
            self.world.together()

    def block(self, number: int) -> None:
        """One block of every variant, in an order that turns from block to block. Collective."""
        turn = number % len(self._variants)
        for variant in self._variants[turn:] + self._variants[:turn]:
            self.found[variant.name].samples.append(self._next(variant, number))
            gc.collect()

    def profile(self, folder: Path) -> None:
        """One more block of every variant, with worker 0 watched by torch's profiler. Collective."""
        for variant in self._variants:
            path = folder / f"{_file_name(variant.name)}.json"
            with _watched(path) if self.world.worker == 0 else nullcontext():
                self._next(variant, self.settings.blocks)
            gc.collect()

    def _held(self, variant: Variant, keep: bool) -> int:
        """The most memory that a variant holds in a step, once its first steps are done."""
        peak = Peak(self.world.device)
        trainee = Trainee(variant, self.settings, self.world)
        for number in range(_FIRST_STEPS + 1):
            if number == _FIRST_STEPS:
                peak.forget()
            trainee.step(number)
        trainee.loop.settle()
        if keep:
            self._kept[variant.name] = trainee
        return peak.above()

    def _next(self, variant: Variant, number: int) -> Sample:
        """A block of the kept model, or of a fresh one where memory holds one at a time."""
        kept = self._kept.get(variant.name)
        return self._block(kept or Trainee(variant, self.settings, self.world), number, kept is None)

    def _block(self, trainee: Trainee, number: int, fresh: bool) -> Sample:
        """Some steps of one variant.

        Seconds are those of the steps that count. There is no barrier before them: the exchange that the last
        step before began is waited for inside, as in steady state, and that of the last one is not. Bytes are
        those of all steps of the block, between two moments in which nothing is on the wire.
        """
        settings, handle = self.settings, trainee.loop.handle
        first = number * (settings.warmup + settings.steps)
        if fresh:
            for k in range(_FIRST_STEPS):
                trainee.step(first + k)
        sent = self._sent_when_settled(trainee)
        self.world.together()
        for k in range(first, first + settings.warmup):
            trainee.step(k)
        self._synchronize()
        waited, began = _waited(handle), time.perf_counter()
        for k in range(first + settings.warmup, first + settings.warmup + settings.steps):
            trainee.step(k)
        self._synchronize()
        seconds, waited_after = time.perf_counter() - began, _waited(handle)
        return Sample(
            seconds / settings.steps,
            _each(sent, self._sent_when_settled(trainee), settings.warmup + settings.steps),
            _each(waited, waited_after, settings.steps),
        )

    def _sent_when_settled(self, trainee: Trainee) -> float | None:
        """What this worker has sent, once everything has arrived on all workers. Collective."""
        trainee.loop.settle()
        self.world.together()
        return self._sent(trainee.loop.handle)

    def _synchronize(self) -> None:
        if self.world.device.type == "cuda":
            torch.cuda.synchronize(self.world.device)

    def _room_for_all(self) -> bool:
        """Whether the models of all variants fit into half of the free memory. Collective."""
        needed = len(self._variants) * COPIES * models.parameter_bytes(self.settings)
        if self.world.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.world.device)[0]
        else:
            free = psutil.virtual_memory().available // self.world.machine
        return all(self.world.gather(2 * needed < free))


def measure(settings: Settings) -> dict[str, Any] | None:
    """Join the workers and measure; on worker 0 what all of them found, on the others None. Collective.

    Raises:
        DecentralizedError: something that cannot be measured here.
    """
    world = join(settings)
    if settings.memory:
        settings = replace(settings, emulate_ms=1e-3, emulate_mb=settings.memory_mb * 2**20 / 1e6)
    bench = Bench(settings, world)
    if not settings.memory:
        bench.tune()
    bench.first()
    if not settings.memory:
        for number in tqdm(range(settings.blocks), desc="blocks", disable=world.worker != 0 or None):
            bench.block(number)
        if settings.profile is not None:
            bench.profile(Path(settings.profile))
    gathered = world.gather({name: (f.held_bytes, f.samples, f.notes) for name, f in bench.found.items()})
    world.together()
    dist.destroy_process_group()
    if world.worker:
        return None
    return {
        "workers": world.workers,
        "workers_per_host": world.workers_per_host,
        "device": world.device.type,
        "framed": world.shaped,
        "parameter_bytes": models.parameter_bytes(settings),
        "left_out": bench.left_out,
        "found": gathered,
    }


def _waited(handle: Gossip | None) -> float | None:
    return None if handle is None else handle.waited_seconds


def _each(before: float | None, after: float | None, steps: int) -> float | None:
    """How much a count grew in a step; None where nobody counts. A connection that closed takes its count."""
    return None if before is None or after is None else max(0.0, after - before) / steps


@contextmanager
def _watched(path: Path) -> Iterator[None]:
    """Watch with torch's profiler and write a Chrome trace; the engine names its own ranges in it."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    all_threads = _ExperimentalConfig(profile_all_threads=True)  # codes are made and read on another one
    with torch.profiler.profile(activities=activities, experimental_config=all_threads) as trace:
        yield
    path.parent.mkdir(parents=True, exist_ok=True)
    trace.export_chrome_trace(str(path))


def _file_name(variant: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "+-._" else "_" for letter in variant)
