"""``hf-decentral calibrate``: measure a cluster and a training script, for ``plan``."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class _Words(TyperCommand):
    """Hands all words on as they are: the flags are a dataclass, and ``--`` parts them from the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        ctx.args = list(args)
        return list(args)


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command(cls=_Words, add_help_option=False)
    def calibrate(context: typer.Context) -> None:
        """Measure compute times and links of a cluster, with a model or a script, and write them for plan."""
        # Here: it brings transformers, which other verbs need not.
        from hf_decentral.calibration.app import main

        main(context.args)
