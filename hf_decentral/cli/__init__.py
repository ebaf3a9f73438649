"""The command line: ``hf-decentral VERB``, one verb a module, one call a verb.

Every verb prints for a person and takes ``--json FILE`` for a program.
"""

from __future__ import annotations

import sys

from hf_decentral.errors import DecentralizedError


def main() -> None:
    """Run the command that was typed; an error of this package is told without a traceback."""
    from hf_decentral.cli.app import build_app  # here: importing the room stays cheap

    try:
        build_app()()
    except DecentralizedError as error:
        from hf_decentral.cli.output import errors

        errors.print(f"{type(error).__name__}: {error}", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
