"""What is sent to the neighbours and how it is combined: one method a file, one row in the table."""

from __future__ import annotations

from hf_decentral import codecs
from hf_decentral.averaging.al_dsgd import al_dsgd
from hf_decentral.averaging.amsgrad import amsgrad
from hf_decentral.averaging.base import Averaging, Exchange, Joined, Local, State
from hf_decentral.averaging.compressed import fed_back, remembered
from hf_decentral.averaging.d2 import d2
from hf_decentral.averaging.dc_s3gd import dc_s3gd
from hf_decentral.averaging.decentlam import decentlam
from hf_decentral.averaging.expression import Chosen, Entry, evaluate
from hf_decentral.averaging.gradient_tracking import gradient_tracking
from hf_decentral.averaging.moniqua import moniqua
from hf_decentral.averaging.outer import diloco, noloco, slowmo, streaming_diloco
from hf_decentral.averaging.plain import plain
from hf_decentral.averaging.powergossip import powergossip
from hf_decentral.averaging.push_sum import prepare as push_sum_prepare
from hf_decentral.averaging.push_sum import push_sum
from hf_decentral.averaging.qg_dsgdm import qg_dsgdm
from hf_decentral.averaging.scalecom import scalecom
from hf_decentral.errors import out_of_range


def _codec(name: str, *numbers: float, spreads: bool = False) -> codecs.Codec:
    return codecs.TABLE[name].make(spreads, *numbers)


def _gamma(value: float) -> float:
    if not 0 < value <= 1:
        advice = "leave it out: the default suits the codec"
        raise out_of_range("gamma", value, "more than 0 and at most 1", advice)
    return value


def _momentum(value: float) -> float:
    if not 0 <= value < 1:
        raise out_of_range("momentum", value, "0 or more and below 1", "0.9 is common")
    return value


def _outer_rate(value: float) -> float:
    if not value > 0:
        raise out_of_range("outer rate", value, "more than 0", "0.7 is common")
    return value


def _fragments(value: float) -> int:
    if value < 1:
        raise out_of_range("fragments", value, "1 or more", "4 is common")
    return int(value)


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise out_of_range("alpha", value, "from 0 to 1", "0.5 is common")
    return value


def _choco(codec: Chosen, gamma: float) -> Averaging:
    return remembered(codec.make(False), _gamma(gamma))


def _deepsqueeze(codec: Chosen, gamma: float) -> Averaging:
    return fed_back(codec.make(True), _gamma(gamma))


TABLE: dict[str, Entry] = {
    "al_dsgd": Entry(al_dsgd, "a pull towards the neighbours that lead: al_dsgd(best, degree)", (0.1, 0.1)),
    "amsgrad": Entry(
        lambda beta1, beta2, least: amsgrad(_momentum(beta1), _momentum(beta2), _outer_rate(least)),
        "the second moments agree among the workers: amsgrad(beta1, beta2, least)",
        (0.9, 0.999, 1e-6),
        (False, False, False),
    ),
    "bf16": Entry(
        lambda: fed_back(_codec("bf16", spreads=True)), "bfloat16 travels, its rounding is made up for"
    ),
    "choco": Entry(
        _choco,
        "differences to what the neighbours know, with any codec: choco(codec, gamma)",
        ("top_k", None),
    ),
    "d2": Entry(d2, "bias of unequal data taken out with the last round's change"),
    "dc_s3gd": Entry(dc_s3gd, "gradients corrected for the way to the late average: dc_s3gd(lam)", (0.2,)),
    "decentlam": Entry(
        decentlam, "momentum of the step with its average, without bias: decentlam(beta)", (0.9,)
    ),
    "deepsqueeze": Entry(
        _deepsqueeze,
        "parameters with any codec, what is lost is sent next: deepsqueeze(codec, gamma)",
        ("int8", None),
    ),
    "diloco": Entry(
        lambda rate, momentum: diloco(_outer_rate(rate), _momentum(momentum)),
        "an outer step of Nesterov's momentum: diloco(rate, momentum)",
        (0.7, 0.9),
        (False, False),
    ),
    "fp16": Entry(
        lambda: fed_back(_codec("fp16", spreads=True)), "float16 travels, its rounding is made up for"
    ),
    "gradient_tracking": Entry(
        gradient_tracking, "steps along an estimate of the mean gradient; twice the bytes"
    ),
    "int4": Entry(
        lambda: remembered(_codec("int4"), 1.0), "differences in 4 bits, one scale for 128 numbers"
    ),
    "int8": Entry(
        lambda: fed_back(_codec("int8", spreads=True)),
        "8 bits, one scale for 128 numbers, rounding made up for",
    ),
    "low_rank": Entry(
        lambda rank, gamma: remembered(_codec("low_rank", rank), _gamma(gamma)),
        "differences of matrices as products of thin ones: low_rank(rank, gamma)",
        (4, 0.2),
        (True, False),
    ),
    "moniqua": Entry(
        moniqua,
        "the parameters modulo a bound, in 8 or 4 bits: moniqua(bits, bound)",
        (8, 2.0),
        (True, False),
    ),
    "noloco": Entry(
        lambda rate, momentum: noloco(_outer_rate(rate), _momentum(momentum)),
        "an outer step with a few neighbours: noloco(rate, momentum)",
        (0.7, 0.5),
        (False, False),
    ),
    "plain": Entry(lambda: Averaging(plain), "the parameters as they are"),
    "powergossip": Entry(
        lambda rank: powergossip(codecs.rank_of(rank)),
        "the main directions in which neighbours differ, found together: powergossip(rank)",
        (1,),
        (True,),
    ),
    "push_sum": Entry(
        lambda: Averaging(push_sum, push_sum_prepare, orders=("atc", "awc"), push=True, delays=False),
        "parameters with a weight each, for directed rounds",
    ),
    "qg_dsgdm": Entry(qg_dsgdm, "momentum of what the average did to the parameters: qg_dsgdm(beta)", (0.9,)),
    "random_k": Entry(
        lambda fraction, gamma: remembered(_codec("random_k", fraction), _gamma(gamma)),
        "a random run of the differences: random_k(fraction, gamma)",
        (0.1, 0.1),
    ),
    "scalecom": Entry(
        scalecom,
        "one worker in turn says which few numbers of the updates all send: scalecom(fraction, beta)",
        (0.05, 1.0),
    ),
    "slowmo": Entry(
        lambda beta, alpha: slowmo(_momentum(beta), _outer_rate(alpha)),
        "an outer step of slow momentum: slowmo(beta, alpha)",
        (0.5, 1.0),
        (False, False),
    ),
    "streaming_diloco": Entry(
        lambda fragments, rate, momentum, alpha: streaming_diloco(
            _fragments(fragments), _outer_rate(rate), _momentum(momentum), _share(alpha)
        ),
        "fragments in turn, mixed in: streaming_diloco(fragments, rate, momentum, alpha)",
        (4, 0.7, 0.9, 0.5),
        (True, False, False, False),
    ),
    "top_k": Entry(
        lambda fraction, gamma: remembered(_codec("top_k", fraction), _gamma(gamma)),
        "the largest differences: top_k(fraction, gamma)",
        (0.05, 0.1),
    ),
}

__all__ = ["TABLE", "Averaging", "Entry", "Exchange", "Joined", "Local", "State", "build", "names", "plain"]


def names() -> list[str]:
    """The names of all averaging methods."""
    return sorted(TABLE)


def build(name: str) -> Averaging:
    """The method of that name.

    Args:
        name: a name of the table, with numbers and a codec behind it where it takes some: ``"top_k(0.01)"``,
            ``"choco(int8, 0.5)"``.

    Raises:
        SettingsError: no method has that name, or a number is out of range.
    """
    return evaluate(name, TABLE)
