"""The compressed methods against their papers, written down in numpy in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_decentral.averaging import Averaging, State, build
from hf_decentral.averaging.compressed import fed_back, remembered
from hf_decentral.codecs import Blockwise, Codec, Span, TopK
from hf_decentral.errors import SettingsError
from hf_decentral.optim.flight import Flight
from hf_decentral.topology import Topology
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory

WORKERS, SIZE = 6, 12
Array = np.ndarray


class Dense(Codec):
    """Sends a function of the vector in double precision: codecs as the papers have them, without rounding."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        super().__init__()
        self._function = function

    def size(self, numel: int) -> int:
        return 8 * numel

    def contraction(self, numel: int) -> float:
        return 0.1

    def encode(self, x: Tensor, code: Tensor, tick: int) -> None:
        code.view(torch.float64).copy_(torch.from_numpy(self._function(x.numpy())))

    def add_(self, out: Tensor, code: Tensor, weight: float) -> Tensor:
        return out.add_(code.view(torch.float64), alpha=weight)


def same(v: Array) -> Array:
    return v.copy()


def largest_two(v: Array) -> Array:
    kept = np.zeros_like(v)
    places = np.argpartition(np.abs(v), -2)[-2:]
    kept[places] = v[places]
    return kept


def drawn(seed: int = 0, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape or (WORKERS, SIZE))


class Run:
    """A method on parameters ``[W, P]`` in memory, from a beginning that all workers have in common."""

    def __init__(
        self, method: Averaging, topology: str | Topology = "ring", layout: Sequence[Span] = ((0, (SIZE,)),)
    ) -> None:
        self.method = method
        self.rounds = build_topology(topology, WORKERS) if isinstance(topology, str) else topology
        self.state = State()
        self.wire = Memory(self.rounds.workers)
        self._layout = layout
        self._step = 0

    def begin(self, x: Array) -> Run:
        if self.method.prepare is not None:
            repeated = self.rounds.repeated() or ()
            self.method.prepare(torch.from_numpy(x.copy()), repeated, self._layout, self.state)
        return self

    def __call__(self, x: Array) -> Array:
        """One round."""
        values = torch.from_numpy(x.copy())
        exchange = self.method(values, self.rounds(self._step), self.state)
        Flight(exchange, values, self.wire, self._step, 0, self.method.background).finish()
        self._step += 1
        return values.numpy()

    @property
    def weights(self) -> Array:
        return self.rounds(self._step).matrix().numpy()


def near(found: Array, expected: Array, within: float = 1e-12) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=within)


def apart(x: Array) -> float:
    return float(np.linalg.norm(x - x.mean(0)))


# CHOCO


def test_choco_without_loss_goes_gamma_of_the_way() -> None:
    x, run = drawn(), Run(remembered(Dense(same), 0.6)).begin(np.zeros((WORKERS, SIZE)))
    near(run(x), 0.4 * x + 0.6 * run.weights @ x)


def test_choco_is_the_rule_of_the_paper() -> None:
    x, run = drawn(), Run(remembered(Dense(largest_two), 0.2)).begin(np.zeros((WORKERS, SIZE)))
    copies, expected = np.zeros_like(x), x.copy()
    for step in range(20):
        update = 0.1 * drawn(step + 1)
        expected = expected + update
        copies = copies + np.stack([largest_two(row) for row in expected - copies])
        expected = expected + 0.2 * (run.weights @ copies - copies)
        x = run(x + update)
        near(x, expected)


def test_choco_comes_to_the_mean_and_keeps_it() -> None:
    x, run = drawn(), Run(remembered(TopK(2 / SIZE), 0.12)).begin(np.zeros((WORKERS, SIZE)))
    mean = x.mean(0)
    for _ in range(2500):
        x = run(x)
        near(x.mean(0), mean, 1e-11)
    assert apart(x) < 1e-8


@pytest.mark.parametrize(
    "text", ["choco(int8, 0.5)", "choco(bf16)", "choco(low_rank(2), 0.2)", "choco(int4)"]
)
def test_choco_comes_together_with_any_codec(text: str) -> None:
    x, run = drawn(), Run(build(text), layout=[(0, (3, 4))]).begin(np.zeros((WORKERS, SIZE)))
    mean = x.mean(0)
    for _ in range(150):
        x = run(x)
    near(x.mean(0), mean, 1e-11)
    assert apart(x) < 1e-3


# DeepSqueeze


def test_deepsqueeze_without_loss_is_the_plain_average() -> None:
    x, run = drawn(), Run(fed_back(Dense(same))).begin(np.zeros((WORKERS, SIZE)))
    near(run(x), run.weights @ x)


def test_deepsqueeze_is_the_rule_of_the_paper() -> None:
    x, run = drawn(), Run(fed_back(Dense(largest_two), 0.3)).begin(np.zeros((WORKERS, SIZE)))
    lost, expected = np.zeros_like(x), x.copy()
    for step in range(20):
        update = 0.1 * drawn(step + 1)
        expected = expected + update
        meant = expected + lost
        sent = np.stack([largest_two(row) for row in meant])
        lost = meant - sent
        expected = expected + 0.3 * (run.weights @ sent - sent)
        mean = (x + update).mean(0)
        x = run(x + update)
        near(x, expected)
        near(x.mean(0), mean)
        near(run.state["lost"].numpy(), lost)


def test_the_short_names_are_deepsqueeze_to_the_last_bit() -> None:
    for short, text in {"int8": "deepsqueeze(int8, 1)", "bf16": "deepsqueeze(bf16)"}.items():
        x = drawn()
        one, other = (Run(build(name)).begin(x) for name in (short, text))
        for step in range(5):
            x = x + 0.1 * drawn(step)
            np.testing.assert_array_equal(one(x), other(x))


# What is refused of codecs


@pytest.mark.parametrize("method", [remembered, fed_back])
def test_a_codec_that_expands_is_refused(method: Callable[[Codec, float], Averaging]) -> None:
    with pytest.raises(SettingsError, match="TopK was given, which makes 704 bytes of 400 bytes"):
        method(TopK(0.875), 0.1).prepare(torch.zeros(2, 100), (), [(0, (100,))], State())  # type: ignore[misc]
    method(TopK(0.5), 0.1).prepare(torch.zeros(2, 100), (), [(0, (100,))], State())  # type: ignore[misc]
    # Of few numbers a message is long only because it is filled up to whole blocks.
    method(Blockwise(8), 1.0).prepare(torch.zeros(2, 1), (), [(0, (1,))], State())  # type: ignore[misc]


@pytest.mark.parametrize("method", [remembered, fed_back])
def test_a_codec_that_may_lose_everything_is_refused(method: Callable[[Codec, float], Averaging]) -> None:
    with pytest.raises(SettingsError, match="Blockwise was given for 500 parameters"):
        method(Blockwise(2), 1.0).prepare(torch.zeros(2, 500), (), [(0, (500,))], State())  # type: ignore[misc]
