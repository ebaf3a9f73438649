"""The algorithms of the literature by name: one row each, made of the parts of the other rooms."""

from __future__ import annotations

from hf_decentral.algorithms.base import Algorithm
from hf_decentral.errors import unknown_name

_WAITS = (
    "each worker goes round by itself and averages with whom it meets, so that there is no step in which a "
    "launched loop could take part"
)

TABLE: dict[str, Algorithm] = {
    "accumadam": Algorithm(
        "Adam whose moments are gathered over windows of steps; parameters are averaged",
        "From Promise to Practice, ICLR 2025, arXiv 2410.11998",
        optimizer="accumadam",
        order="awc",
        lr=0.003,
    ),
    "accumadamw": Algorithm(
        "AccumAdam with decoupled weight decay",
        "From Promise to Practice, ICLR 2025, arXiv 2410.11998",
        optimizer="accumadamw",
        order="awc",
        lr=0.003,
    ),
    "ad_psgd": Algorithm(
        "SGD in asynchronous pairs: nobody waits for a step of another",
        "Lian et al. 2018, arXiv 1710.06952",
        alone=_WAITS,
    ),
    "al_dsgd": Algorithm(
        "a pull towards the neighbour of the smallest loss and that of the most neighbours",
        "He et al. 2024, arXiv 2405.11389",
        averaging="al_dsgd",
    ),
    "choco": Algorithm(
        "the largest differences to what the neighbours know already",
        "Koloskova et al. 2019, arXiv 1902.00340",
        averaging="choco",
    ),
    "consensus_control": Algorithm(
        "a round only where the consensus distance is not below a bound",
        "Kong et al. 2021, arXiv 2102.04828",
        topology="above(0.1, {topology})",
    ),
    "d2": Algorithm(
        "exact diffusion: the bias of unequal data taken out with what the last round changed",
        "Tang et al. 2018, arXiv 1803.07068",
        averaging="d2",
        topology="lazy({topology})",
    ),
    "dadam": Algorithm(
        "Adam on every worker, moments never sent",
        "From Promise to Practice, ICLR 2025, arXiv 2410.11998",
        optimizer="adam",
        order="awc",
        lr=0.003,
    ),
    "damsgrad": Algorithm(
        "AMSGrad whose second moments agree among the workers",
        "Chen et al. 2021, arXiv 2109.03194",
        order="awc",
        averaging="amsgrad",
        lr=0.003,
    ),
    "deepsqueeze": Algorithm(
        "parameters are encoded, and what was lost is sent with the next",
        "Tang et al. 2019, arXiv 1907.07346",
        averaging="deepsqueeze",
    ),
    "diloco": Algorithm(
        "an outer step of Nesterov's momentum on the way that all went together",
        "Douillard et al. 2023, arXiv 2311.08105",
        optimizer="adamw",
        averaging="diloco",
        topology="every({period}, complete)",
        period=16,
        lr=0.003,
    ),
    "dc_s3gd": Algorithm(
        "an all-reduce behind the next step, gradients corrected for its delay",
        "Rigazzi 2019, arXiv 1911.02516",
        averaging="dc_s3gd",
        order="awc",
        topology="complete",
    ),
    "decentlam": Algorithm(
        "momentum of the step with its average, without the bias of local momentum",
        "Yuan et al. 2021, arXiv 2104.11981",
        averaging="decentlam",
        lr=0.02,
    ),
    "dpsgd": Algorithm(
        "SGD, then the mean with the neighbours",
        "Lian et al. 2017, arXiv 1705.09056",
    ),
    "gradient_tracking": Algorithm(
        "steps along an estimate of the mean gradient, which travels with the parameters",
        "Nedić et al. 2017, arXiv 1607.03218",
        averaging="gradient_tracking",
    ),
    "ldsgd": Algorithm(
        "local SGD with neighbours: a round in every so many steps",
        "Li et al. 2019, arXiv 1910.09126",
        topology="every({period}, {topology})",
        period=4,
    ),
    "local_sgd": Algorithm(
        "SGD apart, the mean of all in every so many steps",
        "Stich 2018, arXiv 1805.09767",
        topology="every({period}, complete)",
        period=4,
    ),
    "moniqua": Algorithm(
        "parameters modulo a bound in a few bits, which a near neighbour can complete",
        "Lu and De Sa 2020, arXiv 2002.11787",
        averaging="moniqua",
    ),
    "muon": Algorithm(
        "Muon on every worker, parameters are averaged",
        "Liu et al. 2025, arXiv 2502.16982",
        optimizer="muon",
        order="awc",
        lr=0.02,
    ),
    "noloco": Algorithm(
        "an outer step with one random other: nobody waits for all",
        "Kolehmainen et al. 2025, arXiv 2506.10911",
        optimizer="adam",
        averaging="noloco",
        topology="every({period}, random_matching)",
        period=16,
        lr=0.003,
    ),
    "oldsgd": Algorithm(
        "local SGD whose exchange travels behind all the local steps",
        "arXiv 2601.01493",
        order="awc",
        topology="every({period}, lazy({topology}))",
        period=4,
        delay="period",
    ),
    "osgp": Algorithm(
        "push-sum along directed rounds that travels behind the computing",
        "Assran et al. 2018, arXiv 1811.10792",
        order="awc",
        averaging="push_sum",
    ),
    "powergossip": Algorithm(
        "neighbours find the main directions of their differences together",
        "Vogels et al. 2020, arXiv 2008.01425",
        averaging="powergossip",
    ),
    "scalecom": Algorithm(
        "the mean of the few numbers that one worker in turn chooses; the others are remembered",
        "Chen et al. 2020, arXiv 2104.11125",
        averaging="scalecom",
        topology="complete",
    ),
    "sgp": Algorithm(
        "push-sum along directed rounds",
        "Assran et al. 2018, arXiv 1811.10792",
        averaging="push_sum",
    ),
    "slowmo": Algorithm(
        "slow momentum on the way that all went together",
        "Wang et al. 2019, arXiv 1910.00643",
        averaging="slowmo",
        topology="every({period}, complete)",
        period=16,
    ),
    "streaming_diloco": Algorithm(
        "DiLoCo with a fragment of the parameters in each round",
        "Douillard et al. 2025, arXiv 2501.18512",
        optimizer="adamw",
        averaging="streaming_diloco",
        topology="every({period}, complete)",
        period=4,
        delay=1,
        lr=0.003,
    ),
    "qg_dsgdm": Algorithm(
        "momentum of what step and average did to the parameters",
        "Lin et al. 2021, arXiv 2102.04761",
        averaging="qg_dsgdm",
        lr=0.02,
    ),
}

__all__ = ["TABLE", "Algorithm", "build", "names"]


def names() -> list[str]:
    """The names of all algorithms."""
    return sorted(TABLE)


def build(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises:
        SettingsError: none has that name.
    """
    if name not in TABLE:
        raise unknown_name("algorithm", name, TABLE)
    return TABLE[name]
