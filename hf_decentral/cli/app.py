"""The application: every verb, one line each."""

from __future__ import annotations

import typer

from hf_decentral.cli.algorithms import register as add_algorithms
from hf_decentral.cli.bench import register as add_bench
from hf_decentral.cli.calibrate import register as add_calibrate
from hf_decentral.cli.demo import register as add_demo
from hf_decentral.cli.doctor import register as add_doctor
from hf_decentral.cli.plan import register as add_plan
from hf_decentral.cli.report import register as add_report
from hf_decentral.cli.simulate import register as add_simulate
from hf_decentral.cli.topology import register as add_topology


def build_app() -> typer.Typer:
    """The application with all its verbs."""
    app = typer.Typer(
        name="hf-decentral",
        help="Decentralized (gossip) data-parallel training.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for add in (
        add_algorithms,
        add_bench,
        add_calibrate,
        add_demo,
        add_doctor,
        add_plan,
        add_report,
        add_simulate,
        add_topology,
    ):
        add(app)
    return app
