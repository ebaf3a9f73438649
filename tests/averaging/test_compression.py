"""The compressed methods against their papers, written down in numpy in double precision."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_decentral.averaging import Averaging, State, build
from hf_decentral.averaging.compressed import fed_back, remembered
from hf_decentral.averaging.moniqua import moniqua
from hf_decentral.codecs import Blockwise, Codec, Span, TopK
from hf_decentral.errors import ParameterError, SettingsError
from hf_decentral.optim.flight import Flight
from hf_decentral.topology import Topology
from hf_decentral.topology import build as build_topology
from hf_decentral.transport import Memory

WORKERS, SIZE = 6, 12
Array = np.ndarray


class Dense(Codec):
    """Sends a function of the vector in double precision: codecs as papers have them, without rounding."""

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


# Moniqua


@pytest.mark.parametrize("bits", [4, 8])
def test_moniqua_finds_the_numbers_next_to_its_own(bits: int) -> None:
    """``x_i <- x_i + sum_j w_ij (X_ij - X_ii)``: ``X_ij`` is what ``j`` sent, next to ``x_i``, modulo B."""
    bound, levels = 4.0, 2**bits - 1
    step = bound / levels
    x = 100 * drawn(0, 1, SIZE) + 0.3 * drawn(1)  # much further from zero than the bound
    run = Run(moniqua(bits, bound)).begin(x)
    for _ in range(10):
        offset = random.Random(run.state.get("sent", 0)).random()
        sent = np.floor(x / step + offset) % levels
        away = (sent[None] - offset) * step - x[:, None]
        seen = x[:, None] + (away + bound / 2) % bound - bound / 2
        assert np.abs(seen - x[None]).max() < step
        own = np.stack([seen[i, i] for i in range(WORKERS)])
        expected = x + np.einsum("ij,ijp->ip", run.weights, seen - own[:, None])
        mean = x.mean(0)
        x = run(x)
        near(x, expected, 1e-10)
        near(x.mean(0), mean, 1e-12)


def test_moniqua_comes_as_near_as_a_step() -> None:
    x, run = 0.2 * drawn(), Run(moniqua(8, 2.0)).begin(drawn())
    for _ in range(100):
        x = run(x)
    assert np.abs(x - x.mean(0)).max() < 2.0 / 255


def test_moniqua_lets_equal_workers_be() -> None:
    x = np.repeat(drawn(3, 1, SIZE), WORKERS, 0)
    run = Run(moniqua(8, 1.0)).begin(x)
    for _ in range(5):
        np.testing.assert_array_equal(run(x), x)


@pytest.mark.parametrize("distance", [0.45, 0.49, 0.51, 0.55])
@pytest.mark.parametrize("bits", [4, 8])
def test_moniqua_stops_before_another_number_is_decoded(bits: int, distance: float) -> None:
    x = np.repeat(drawn(3, 1, SIZE), WORKERS, 0)
    run = Run(moniqua(bits, 1.0)).begin(x)
    x[2, 7] += distance
    with pytest.raises(
        ParameterError, match=r"worker 1 .* workers 0, 2, .*\n.*0.5, half.*\n.*'moniqua\(8, 2\)'"
    ):
        run(x)
    x[2, 7] -= distance - 0.35
    mean = x.mean(0)
    near(run(x).mean(0), mean)


def test_moniqua_sends_a_byte_or_half_of_it() -> None:
    for bits, share in ((8, 1.0), (4, 0.5)):
        run = Run(moniqua(bits, 1.0), layout=[(0, (1000,))]).begin(np.zeros((WORKERS, 1024)))
        run(np.zeros((WORKERS, 1024)))
        assert run.wire.sent_bytes == 2 * 1024 * share  # to two neighbours


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_moniqua_tells_what_is_no_number(bits: int, bad: float) -> None:
    """It arrives where the plain average would let it arrive, and nowhere else."""
    x = 0.1 * drawn()
    x[2, 5] = bad
    found = Run(moniqua(bits, 2.0)).begin(drawn())(x)
    assert np.argwhere(~np.isfinite(found)).tolist() == [[1, 5], [2, 5], [3, 5]]
    assert np.isnan(found[1, 5])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("moniqua(3)", "bits=3"),
        ("moniqua(8, 0)", "bound=0"),
        ("moniqua(8, -1)", "bound=-1"),
        ("moniqua(8.5)", "at most 2 numbers"),
        ("moniqua(int8)", "Expected numbers"),
    ],
)
def test_moniqua_with_other_numbers_is_refused(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as found:
        build(text)
    assert told in str(found.value)


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
