"""``hf-decentral doctor``: what would break a run on this machine, and the fix."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from hf_decentral.cli.checks import CHECKS, Check, launch_file
from hf_decentral.cli.output import Json, console, write_json

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def examine(environment: Mapping[str, str], config_file: Path | None = None) -> list[Check]:
    """Make every check; one that breaks is a finding too."""
    found: list[Check] = []
    for check in CHECKS:
        try:
            found += check(environment)
        except Exception as error:  # a doctor that falls over has found something
            cause = f"{type(error).__name__}: {error}"
            found.append(Check(check.__name__, "fail", cause, "the check itself failed; read its message"))
    return found + list(launch_file(environment, config_file))


def show(checks: list[Check]) -> Table:
    """A row for each check; the fix stands below what was found."""
    made = Table(header_style="bold")
    for heading in ("check", "", "found, and what to do"):
        made.add_column(heading, overflow="fold")
    for check in checks:
        colour = COLOURS[check.status]
        fix = f"\n[bold]fix:[/bold] {escape(check.fix)}" if check.fix else ""
        made.add_row(check.name, f"[{colour}]{check.status}[/{colour}]", escape(check.found) + fix)
    return made


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def doctor(
        config_file: Annotated[
            Path | None,
            typer.Option(
                "--config_file", help="Launch file to look at; default: the user's own.", show_default=False
            ),
        ] = None,
        json: Json = None,
    ) -> None:
        """Say what would break a run here and how to mend it; exit code 1 if something would."""
        checks = examine(os.environ, config_file)
        healthy = all(check.status != "fail" for check in checks)
        if os.environ.get("RANK", "0") != "0":
            return  # under a launcher all examine and one tells; an error here would end it too early
        console.print(show(checks))
        write_json(json, {"ok": healthy, "checks": [check._asdict() for check in checks]})
        raise typer.Exit(0 if healthy else 1)
