"""Training arguments with the settings of decentralized training, beside all those of transformers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from transformers import Seq2SeqTrainingArguments, TrainingArguments

from hf_decentral import algorithms
from hf_decentral.errors.trainer import batch_size_search
from hf_decentral.integrations import settings
from hf_decentral.integrations.composition import ALLREDUCE
from hf_decentral.integrations.plugin import DecentralizedPlugin
from hf_decentral.integrations.recipe import option
from hf_decentral.integrations.settings import Settings
from hf_decentral.trainer import names


@dataclass(repr=False)
class DecentralizedArguments:
    """The arguments that are added to those of transformers; ``--help`` tells what each is for.

    What is left out here is looked for in the environment (``DECENTRAL_TOPOLOGY`` ...), in the file named by
    ``DECENTRAL_CONFIG`` and in the file of ``accelerate launch``. Where nobody names a topology, an optimizer
    of transformers stays under All-Reduce, and one of ours gossips on ``aer``.
    """

    optim: str = option(
        "Optimizer: any name of transformers, or accumadam, accumadamw, dadam, dadamw, dsgd, dmuon. Any of "
        "them gossips when there is a topology.",
        TrainingArguments.default_optim,
    )
    topology: str | None = option(
        "Who averages parameters with whom: aer, hierarchical, complete, one_peer_exponential, base_graph, "
        "ring; or a schedule around such names, 'every(8, ring)' or 'then(complete, 500, aer)'; or auto, "
        "chosen by what the first steps show; or allreduce, the Trainer's own. `hf-decentral topology show` "
        "tells what each sends."
    )
    algorithm: str | None = option(
        "An algorithm of the literature, which says what is not given here: slowmo, diloco, sgp, oldsgd, d2, "
        "choco, ... `hf-decentral algorithms` tells what each does. Without --optim its optimizer is taken."
    )
    period: int | None = option("Steps from one round of the algorithm to the next. Default: its own.")
    delay: int | None = option("Local steps that an exchange travels. Default: as the order says.")
    accum: int | None = option(
        "Optimizer steps for which accumadam(w) gathers gradients before it commits its moments. Default: 4."
    )
    horizon: str | None = option(
        "What the betas of accumadam(w) count: windows, as published, or steps, for short runs."
    )
    embedding_scale: float | None = option(
        "Learning rate of the embeddings as a multiple of --learning_rate; in short runs with gossip try the "
        "number of workers."
    )
    averaging: str | None = option("What is sent: plain, bf16, int8, int4, top_k(0.01), ... Default: plain.")
    order: str | None = option(
        "Where the average stands relative to the local step: awc (behind the next pass), atc or cta."
    )
    comm_timeout: float | None = option("Longest wait for a neighbour, in seconds. Default: 600.")
    hosts: str | None = option("Workers of each host, as 4,4,2. Default: found.")
    bucket_mb: float | None = option("Megabytes of parameters that are exchanged as one. Default: 4.")
    cluster: str | None = option(
        "The file of `hf-decentral calibrate` by which --topology auto chooses. Default: by the first steps."
    )
    save_workers: bool = option(
        "Whether a checkpoint holds each worker's replica, moments and random numbers beside the consensus, "
        "so that training resumes bit for bit; also with --save_only_model.",
        True,
    )
    log_consensus: bool = option(
        "Whether logging steps also tell the consensus distance (a sum over all parameters and workers).",
        True,
    )

    def __post_init__(self) -> None:
        name = names.checked(algorithm_optimizer(self.algorithm, self.optim))
        # `Any`: transformers' own arguments come with the classes below.
        args: Any = self
        if settle(args).topology != ALLREDUCE and args.auto_find_batch_size:
            raise batch_size_search()
        if not torch.accelerator.is_available():
            self.use_cpu = True  # must be told, or N processes without accelerator train alone
        ours = names.is_ours(name)
        # Transformers would refuse a name that it does not know.
        self.optim = "adamw_torch" if ours else name
        super().__post_init__()  # type: ignore[misc]  # TrainingArguments comes next in the classes below
        if ours:
            self.optim = name

    def __repr__(self) -> str:
        return str(self)  # transformers hides tokens of the hub there

    def set_optimizer(self, name: Any = "adamw_torch", **others: Any) -> Any:
        """As that of transformers, for our names too."""
        ours = names.is_ours(names.checked(name))
        super().set_optimizer("adamw_torch" if ours else name, **others)  # type: ignore[misc]
        if ours:
            self.optim = names.checked(name)
        return self


@dataclass(repr=False)
class DecentralizedTrainingArguments(DecentralizedArguments, TrainingArguments):  # type: ignore[misc]
    """``transformers.TrainingArguments`` with the settings of :class:`DecentralizedArguments`."""


@dataclass(repr=False)
class DecentralizedSeq2SeqTrainingArguments(  # type: ignore[misc]
    DecentralizedArguments, Seq2SeqTrainingArguments
):
    """``transformers.Seq2SeqTrainingArguments`` with the settings of :class:`DecentralizedArguments`."""


def settle(args: TrainingArguments) -> Settings:
    """How a run with these arguments averages, and where each setting was found.

    Args:
        args: ours, or those of transformers.

    Raises:
        SettingsError: a setting that cannot be meant.
    """
    found = settings.resolve(_given(args))
    if dict(found.sources)["topology"] == "default" and not names.is_ours(args.optim):
        return replace(found, topology=ALLREDUCE)  # the source stays: nobody asked for it
    return found


def algorithm_optimizer(algorithm: str | None, optim: Any) -> Any:
    """The optimizer of an algorithm where none was asked for, else the one that was."""
    stock = str(getattr(optim, "value", optim)) == str(TrainingArguments.default_optim)
    known = algorithm in algorithms.TABLE
    return algorithms.TABLE[str(algorithm)].optimizer if stock and known else optim


def make_plugin(args: TrainingArguments) -> DecentralizedPlugin:
    """The plugin of a run with these arguments, not yet attached.

    Raises:
        SettingsError: a setting that cannot be meant.
    """
    plugin = DecentralizedPlugin(**_given(args))
    plugin.settings = settle(args)
    return plugin


def _given(args: TrainingArguments) -> dict[str, Any]:
    return {name: getattr(args, name, None) for name in settings.NAMES}


OURS = tuple(each.name for each in fields(DecentralizedArguments) if each.name != "optim")
"""The arguments that transformers does not have."""
