"""What an algorithm of the literature is: a local optimizer, an order, an averaging method and a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hf_decentral.errors import out_of_range


@dataclass(frozen=True)
class Algorithm:
    """One algorithm, in the words of :func:`hf_decentral.decentralize`.

    Attributes:
        summary: what it is, for people.
        source: the paper.
        optimizer: name of the local optimizer.
        settings: of that optimizer, where they are not its defaults.
        order: where the average stands relative to the local step.
        averaging: what is sent and how it is combined.
        topology: the rounds. ``{topology}`` stands for the one that a user asks for; without it the algorithm
            has its own. ``{period}`` stands for :attr:`period`.
        period: steps from one round to the next.
        delay: local steps that an exchange travels, where that is not what the order says; ``"period"`` is
            the whole time until the next begins.
        lr: the learning rate with which a comparison may begin.
        alone: why it has no global step, so that it runs in the simulator only; empty where it has.
    """

    summary: str
    source: str
    optimizer: str = "sgd"
    settings: Mapping[str, float] = field(default_factory=dict)
    order: str = "atc"
    averaging: str = "plain"
    topology: str = "{topology}"
    period: int = 1
    delay: int | str | None = None
    lr: float = 0.1
    alone: str = ""

    @property
    def chooses(self) -> bool:
        """Whether it runs on whatever topology is asked for."""
        return "{topology}" in self.topology

    def every(self, period: int | None) -> Algorithm:
        """The same with another number of steps from round to round; None leaves it.

        Raises:
            SettingsError: below 1.
        """
        if period is None:
            return self
        if period < 1:
            raise out_of_range("period", period, "1 or more", "1 is a round in every step")
        return replace(self, period=period)

    def rounds(self, topology: str) -> str:
        """The name of the topology with which ``decentralize`` is to be called."""
        return self.topology.format(topology=topology, period=self.period)

    def how(self, topology: str) -> dict[str, Any]:
        """The arguments of ``decentralize()``.

        Args:
            topology: the name of the one that is asked for.
        """
        return {
            "topology": self.rounds(topology),
            "order": self.order,
            "averaging": self.averaging,
            "delay": self.period if self.delay == "period" else self.delay,
        }
