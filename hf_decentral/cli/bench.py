"""``hf-decentral bench``: step time, bytes, waiting and memory of ways to train in parallel."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the verb."""

    # Its flags are a dataclass, as those of every script here; --help among them.
    @app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
    )
    def bench(context: typer.Context) -> None:
        """Measure steps beside DDP, on shaped network namespaces, on loopback, or in a launched run."""
        from hf_decentral.bench.app import main  # here: it brings transformers, which other verbs need not

        main(context.args)
