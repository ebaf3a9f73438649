"""``hf-decentral calibrate``: what the planner needs to know of a cluster and a training script."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the verb."""

    # Its flags are a dataclass, as those of the benchmark; --help among them.
    @app.command(
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "allow_interspersed_args": False,
        },
        add_help_option=False,
    )
    def calibrate(context: typer.Context) -> None:
        """Measure compute times and links where you train, for plan; under accelerate launch or by itself."""
        from hf_decentral.calibration.app import main  # here: it brings transformers, which others need not

        main(context.args)
