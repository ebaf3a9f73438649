"""The compressed methods against their papers, written down in numpy in double precision."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_decentral.averaging import Averaging, State, build
from hf_decentral.averaging.compressed import fed_back, remembered
from hf_decentral.averaging.moniqua import moniqua
from hf_decentral.averaging.powergossip import powergossip
from hf_decentral.averaging.scalecom import scalecom
from hf_decentral.codecs import Blockwise, Codec, Span, TopK
from hf_decentral.errors import ParameterError, SettingsError
from hf_decentral.optim import decentralize
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
        self.state.local.workers = tuple(range(self.rounds.workers))  # as the engine tells them
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


# ScaleCom


def scaled(fraction: float, beta: float, steps: int) -> list[tuple[Array, Array, Array, Array]]:
    """Parameters before and after, the updates of the workers, and what is remembered, of each round."""
    start = np.repeat(drawn(9, 1, SIZE), WORKERS, 0)
    run = Run(scalecom(fraction, beta), "complete").begin(start)
    x, seen = start, []
    for step in range(steps):
        update = drawn(step + 20)
        after = run(x + update)
        seen.append((x, after, update, run.state["lost"].numpy().copy()))
        x = after
    return seen


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_scalecom_is_the_rule_of_the_paper(beta: float) -> None:
    lost = np.zeros((WORKERS, SIZE))
    for step, (before, after, update, remembers) in enumerate(scaled(3 / SIZE, beta, 15)):
        meant = lost + update
        chosen = np.argsort(np.abs(meant[step % WORKERS]))[-3:]
        sent = np.zeros_like(meant)
        sent[:, chosen] = meant[:, chosen]
        near(after, before + sent.mean(0))
        lost = lost + beta * (update - sent)
        near(remembers, lost)


def test_scalecom_sends_the_same_few_numbers_of_all_workers() -> None:
    """So the sum is as short as its parts: choosing commutes with summing."""
    for before, after, _, _ in scaled(3 / SIZE, 1.0, 12):
        assert (after == after[0]).all()
        assert np.count_nonzero(after[0] - before[0]) == 3


def test_scalecom_with_all_numbers_is_centralized_training() -> None:
    for before, after, update, lost in scaled(1.0, 1.0, 8):
        near(after, before + update.mean(0))
        near(lost, np.zeros_like(lost))


def test_scalecom_with_what_it_remembers_follows_plain_training() -> None:
    virtual = None
    for before, after, update, lost in scaled(2 / SIZE, 1.0, 20):
        virtual = before[0] if virtual is None else virtual
        virtual = virtual + update.mean(0)
        near(after[0] + lost.mean(0), virtual)


def test_scalecom_leaves_out_what_is_no_number() -> None:
    start = np.zeros((WORKERS, SIZE))
    run, bad = Run(scalecom(1.0, 1.0), "complete").begin(start), drawn()
    bad[3, 4] = np.nan
    expected = np.nan_to_num(bad).mean(0)
    near(run(bad), np.repeat(expected[None], WORKERS, 0))


def test_scalecom_counts_what_it_sends() -> None:
    run = Run(scalecom(0.1, 1.0), "complete").begin(np.zeros((WORKERS, 480)))
    run(drawn(0, WORKERS, 480))
    places, values = 4 * 48 * (WORKERS - 1) / WORKERS, 8 * 48 * 2 * (WORKERS - 1) / WORKERS
    assert run.wire.sent_bytes == places + values


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"topology": "ring", "order": "atc"}, "mean of all workers"),
        ({"topology": "complete", "order": "awc"}, "works with order 'atc'"),
        ({"averaging": "scalecom(0)"}, "fraction=0"),
        ({"averaging": "scalecom(0.1, 2)"}, "beta=2"),
    ],
)
def test_scalecom_where_it_cannot_be_is_refused(how: dict[str, str], told: str) -> None:
    p = torch.nn.Parameter(torch.ones(WORKERS, 3))
    how = {"topology": "complete", "order": "atc", "averaging": "scalecom"} | how
    with pytest.raises(SettingsError, match=told):
        decentralize(torch.optim.SGD([p], lr=0.1), transport=Memory(WORKERS), **how)


# PowerGossip

MATRICES = [
    (0, (4, 5)),
    (32, (3,)),
    (48, (6, 2, 3)),
    (96, (2, 2)),
]  # two thin ones, and two that travel whole


def packed(parts: Sequence[Array]) -> Array:
    """A bucket ``[W, 112]`` with gaps between the parameters, as buckets have them."""
    x = np.zeros((len(parts[0]), 112))
    for (offset, _), part in zip(MATRICES, parts, strict=True):
        x[:, offset : offset + part[0].size] = part.reshape(len(part), -1)
    return x


def parts_of(x: Array) -> list[Array]:
    return [x[:, at : at + int(np.prod(shape))].reshape(len(x), *shape) for at, shape in MATRICES]


def power_round(x: Array, directions: dict[tuple[int, int, int], Array], weights: Array, rank: int) -> Array:
    """The rule of the paper for every edge, matrix by matrix; changes the directions."""
    parts = [part.reshape(len(x), part.shape[1], -1) for part in parts_of(x)]
    moved = [np.zeros_like(part) for part in parts]
    for i, j in np.argwhere(np.triu(weights, 1)):
        for k, part in enumerate(parts):
            difference = part[j] - part[i]
            if rank * sum(difference.shape) < difference.size:
                left = np.linalg.qr(difference @ directions[i, j, k])[0]
                directions[i, j, k] = difference.T @ left
                difference = left @ directions[i, j, k].T
            moved[k][i] += weights[i, j] * difference
            moved[k][j] -= weights[i, j] * difference
    return packed([part + move for part, move in zip(parts, moved, strict=True)])


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("topology", ["ring", "complete", "hierarchical"])
def test_powergossip_is_the_rule_of_the_paper(topology: str, rank: int) -> None:
    x = packed([drawn(k, WORKERS, *shape) for k, (_, shape) in enumerate(MATRICES)])
    run = Run(powergossip(rank), topology, MATRICES).begin(x)
    known: dict[str, dict[tuple[int, int, int], Array]] = {}
    for step in range(6):
        x = x + packed([0.1 * drawn(step + k, WORKERS, *shape) for k, (_, shape) in enumerate(MATRICES)])
        round = run.rounds(step)
        if round.key not in known:
            start = run.state[f"directions {round.key}"][0, 0].numpy()
            both = {0: start[: 5 * rank].reshape(5, rank), 2: start[5 * rank :].reshape(6, rank)}
            edges = np.argwhere(np.triu(run.weights, 1))
            known[round.key] = {(i, j, k): part for i, j in edges for k, part in both.items()}
        expected = power_round(x, known[round.key], run.weights, rank)
        total = x.sum(0)
        x = run(x)
        near(x, expected, 1e-10)
        near(x.sum(0), total, 1e-12)


def alone(rank: int = 1) -> tuple[Run, Callable[[Array], Array]]:
    """Two workers with one matrix of 6 x 5."""
    run = Run(powergossip(rank), build_topology("ring", 2), [(0, (6, 5))]).begin(np.zeros((2, 30)))
    return run, lambda x: (x[1] - x[0]).reshape(6, 5)


def test_a_step_of_powergossip_is_a_projection_of_that_rank() -> None:
    run, difference = alone()
    x = drawn(4, 2, 30)
    before, after = difference(x), difference(run(x))
    assert np.linalg.matrix_rank(before - after) == 1
    np.testing.assert_allclose((after**2).sum(), (before**2).sum() - ((before - after) ** 2).sum())


def test_powergossip_takes_what_differs_away() -> None:
    run, difference = alone()
    x = drawn(4, 2, 30)
    total, sizes = x.sum(0), []
    for _ in range(60):
        x = run(x)
        sizes.append(float(np.linalg.norm(difference(x))))
    near(x.sum(0), total)
    assert sizes[-1] < 1e-12
    assert all(after <= before + 1e-14 for before, after in pairwise(sizes))


def test_both_of_a_pair_remember_the_same_bits() -> None:
    x = packed([drawn(k, WORKERS, *shape) for k, (_, shape) in enumerate(MATRICES)])
    run = Run(powergossip(1), "ring", MATRICES).begin(x)
    start = run.state[f"directions {run.rounds(0).key}"].clone()
    for _ in range(3):
        x = run(x)
    known = run.state[f"directions {run.rounds(0).key}"]
    for k, pairs in enumerate(run.rounds(0).matchings):
        for i, j in pairs:
            assert torch.equal(known[i, k], known[j, k])
            assert not torch.equal(known[i, k], start[i, k])


def test_powergossip_lets_equal_workers_be_and_goes_on_afterwards() -> None:
    run, difference = alone()
    x = np.repeat(drawn(4, 1, 30), 2, 0)
    np.testing.assert_array_equal(run(run(x)), x)
    x[0] += drawn(5, 30)
    before = np.linalg.norm(difference(x))
    assert np.linalg.norm(difference(run(x))) < 0.99 * before


def test_powergossip_lets_nobody_catch_what_is_no_number() -> None:
    """A worker keeps what it has; neighbours take no part of it, and the rest comes together."""
    x = packed([drawn(k, WORKERS, *shape) for k, (_, shape) in enumerate(MATRICES)])
    x[2, 7], x[2, 33] = np.nan, np.inf
    run = Run(powergossip(1), "ring", MATRICES).begin(np.zeros_like(x))
    for _ in range(200):
        x = run(x)
    assert np.argwhere(~np.isfinite(x)).tolist() == [[2, 7], [2, 33]]
    assert apart(x[:, 48:84]) < 1e-5


def test_powergossip_counts_thin_matrices_and_what_is_whole() -> None:
    x = packed([drawn(k, WORKERS, *shape) for k, (_, shape) in enumerate(MATRICES)])
    run = Run(powergossip(1), "ring", MATRICES).begin(x)
    run(x)
    assert run.wire.sent_bytes == 2 * 8 * ((4 + 5) + (6 + 6) + 3 + 4)


def test_powergossip_in_half_precision_is_computed_in_single() -> None:
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    method, state, ring = powergossip(1), State(), build_topology("ring", 2)
    state.local.workers = (0, 1)
    method.prepare(x, ring.rounds(), [(0, (8, 8))], state)  # type: ignore[misc]
    assert state[f"directions {ring(0).key}"].dtype == torch.float32
    before = (x[1] - x[0]).float().norm()
    for step in range(40):
        Flight(method(x, ring(0), state), x, Memory(2), step, 0, True).finish()
    assert (x[1] - x[0]).float().norm() < 0.02 * before


@pytest.mark.parametrize(
    ("topology", "averaging", "told"),
    [
        ("one_peer_exponential", "powergossip", "hear each other with one weight"),
        ("random_ring", "powergossip", "do not repeat"),
        ("ring", "powergossip(0)", "rank=0"),
        ("ring", "powergossip(1.5)", "at most 1 number"),
    ],
)
def test_powergossip_where_it_cannot_be_is_refused(topology: str, averaging: str, told: str) -> None:
    p = torch.nn.Parameter(torch.ones(WORKERS, 3))
    with pytest.raises(SettingsError, match=told):
        decentralize(torch.optim.SGD([p], lr=0.1), topology, averaging=averaging, transport=Memory(WORKERS))


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
