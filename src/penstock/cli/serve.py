"""``penstock serve``: runs the service until it is stopped."""

from __future__ import annotations

import argparse

from penstock.cli.arguments import Commands, complain
from penstock.running.settings import SettingsError
from penstock.running.settings_sources import add_flags, load


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the rate limit service, for Envoy, nginx and others",
        description="Serves rate limits over gRPC (Envoy's rate limit service) and HTTP. Every"
        " option may also be given as PENSTOCK_... in the environment, or in a file (--config).",
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from penstock.running.app import serve

    try:
        settings = load(vars(arguments))
    except SettingsError as error:
        return complain("serve", error)
    return serve(settings)
