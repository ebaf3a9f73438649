"""What a Trainer's log tells of the workers: their losses, their distance, bytes and waiting."""

from __future__ import annotations

from typing import Any

from hf_decentral.integrations.auto import Chosen
from hf_decentral.integrations.plugin import DecentralizedPlugin


class Report:
    """The lines of one Trainer.

    Attributes:
        losses: of the workers, for the next line.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self._before = (0.0, 0.0)
        self._told: Chosen | None = None

    def begin(self, plugin: DecentralizedPlugin) -> None:
        """Count bytes and seconds from now on."""
        self._before = (plugin.sent_bytes, plugin.waited_seconds)

    def line(self, plugin: DecentralizedPlugin, distance: bool) -> dict[str, Any]:
        """What to add to the next line, once. Collective where the consensus distance is wanted.

        The first line after the choice of ``--topology auto`` also tells what was chosen.
        """
        found: dict[str, Any] = {"loss_worker_min": min(self.losses), "loss_worker_max": max(self.losses)}
        self.losses = []
        if distance:
            found["consensus_distance"] = plugin.distance()
        found["sent_bytes"] = plugin.sent_bytes - self._before[0]
        found["waited_seconds"] = plugin.waited_seconds - self._before[1]
        if plugin.auto is not None and plugin.auto.chosen not in (None, self._told):
            self._told = plugin.auto.chosen
            found |= {"topology": plugin.topology, "averaging": plugin.averaging}
        return found
