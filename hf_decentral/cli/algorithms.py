"""``hf-decentral algorithms``: what can be compared and trained with, by name."""

from __future__ import annotations

import typer
from rich.table import Table

from hf_decentral.algorithms import TABLE, Algorithm
from hf_decentral.cli.output import Json, console, write_json


def facts(algorithm: Algorithm) -> dict[str, object]:
    """One algorithm as plain keys."""
    return {
        "summary": algorithm.summary,
        "source": algorithm.source,
        "optimizer": algorithm.optimizer,
        "order": algorithm.order,
        "averaging": algorithm.averaging,
        "topology": algorithm.topology,
        "period": algorithm.period,
        "delay": algorithm.delay,
        "lr": algorithm.lr,
        "simulator_only": algorithm.alone or None,
    }


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command("algorithms")
    def _algorithms(json: Json = None) -> None:
        """All algorithms of the literature that are known by name, and of which parts each is made."""
        table = Table("name", "what it is", "optimizer", "order", "averaging", "rounds", "source")
        for name, each in sorted(TABLE.items()):
            rounds = each.topology.format(topology="TOPOLOGY", period=each.period)
            table.add_row(name, each.summary, each.optimizer, each.order, each.averaging, rounds, each.source)
        console.print(table)
        write_json(json, {"algorithms": {name: facts(each) for name, each in sorted(TABLE.items())}})
