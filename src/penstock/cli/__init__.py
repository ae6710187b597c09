"""The ``penstock`` command, with a file for each of its commands.

A command is a module with ``register``, which adds its parser and names the
function that runs it. That function takes the parsed arguments and returns the
exit code: 0 for success, 2 for invalid arguments, 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

from penstock import _mode
from penstock._version import __version__
from penstock.cli import (
    admin,
    bench,
    check,
    demo,
    explain,
    export,
    proxy,
    quota,
    recommend,
    rules,
    serve,
    simulate,
    top,
)
from penstock.cli.arguments import BAD_ARGUMENTS, Parser, complain, reader_may_leave
from penstock.rules.problems import nearest
from penstock.rules.reading.files import ENDINGS

DONE = 0
INTERRUPTED = 130
_COMMANDS = (
    *(demo, check, explain, recommend, simulate, export, rules),
    *(serve, admin, proxy, top, quota, bench),
)
# The extra that installs a module.
_EXTRAS = {
    "yaml": "rules", "watchfiles": "rules", "httptools": "server", "hpack": "server",
    "uvloop": "server", "prometheus_client": "server", "grpc": "grpc", "google": "grpc",
    "redis": "redis", "hiredis": "redis", "psycopg": "postgres",
}  # fmt: skip


def version() -> str:
    return f"penstock {__version__} ({_mode.describe()}, Python {platform.python_version()})"


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="penstock", description="Rate limits by rules: serve, check and measure them."
    )
    parser.add_argument("--version", action="store_true", help="show the version and the core")
    commands = parser.add_subparsers(title="commands", metavar="<command>", dest="command")
    parser.set_defaults(parser=parser)
    for command in _COMMANDS:
        command.register(commands)
    for each in commands.choices.values():
        if each.get_default("parser") is None:
            each.set_defaults(parser=each)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Errors name the command or the option that was probably meant."""
    parser = build_parser()
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        options = parsed.parser._option_string_actions
        hint = nearest(unknown[0].partition("=")[0], options)
        if unknown[0].endswith(ENDINGS) and "--rules" in options:
            hint = f" (did you mean '--rules {unknown[0]}'?)"
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; argparse itself exits with 2 on bad arguments."""
    parsed = parse(explain.reordered(sys.argv[1:] if arguments is None else arguments))
    if parsed.version:
        print(version())
        return DONE
    if not hasattr(parsed, "run"):
        parsed.parser.print_help(sys.stderr)
        return BAD_ARGUMENTS
    try:
        with reader_may_leave():
            code: int = parsed.run(parsed)
            return code
        return DONE
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the shell's prompt on a line of its own
        return INTERRUPTED
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _EXTRAS:
            raise
        extra = "server" if parsed.command in ("serve", "proxy") else _EXTRAS[name]
        return complain(parsed.command, f"this needs {name}: pip install 'penstock[{extra}]'")
