"""The command line: ``hf-decentral VERB``, one verb a module, one call a verb.

Every verb prints for a person and takes ``--json FILE`` for a program.
"""

from __future__ import annotations

import sys

import typer

from hf_decentral.errors import DecentralizedError


def build_app() -> typer.Typer:
    """The application with all its verbs."""
    from hf_decentral.cli import demo, doctor, report, topology

    app = typer.Typer(
        name="hf-decentral",
        help="Decentralized (gossip) data-parallel training.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for verb in (demo, doctor, report, topology):
        verb.register(app)
    return app


def main() -> None:
    """Run the command that was typed; an error of this package is told without a traceback."""
    try:
        build_app()()
    except DecentralizedError as error:
        from hf_decentral.cli.output import errors

        errors.print(f"{type(error).__name__}: {error}", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
