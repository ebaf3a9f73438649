"""What a Trainer's log tells of the workers: their losses, their distance, bytes and waiting."""

from __future__ import annotations

from hf_decentral.integrations.plugin import DecentralizedPlugin


class Report:
    """The lines of one Trainer.

    Attributes:
        losses: of the workers, for the next line.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self._before = (0.0, 0.0)

    def begin(self, plugin: DecentralizedPlugin) -> None:
        """Count bytes and seconds from now on."""
        self._before = (plugin.sent_bytes, plugin.waited_seconds)

    def line(self, plugin: DecentralizedPlugin, distance: bool) -> dict[str, float]:
        """What to add to the next line, once. Collective where the consensus distance is wanted."""
        found = {"loss_worker_min": min(self.losses), "loss_worker_max": max(self.losses)}
        self.losses = []
        if distance:
            found["consensus_distance"] = plugin.distance()
        found["sent_bytes"] = plugin.sent_bytes - self._before[0]
        found["waited_seconds"] = plugin.waited_seconds - self._before[1]
        return found
