"""The ``penstock`` command: one file a command, and this one to choose among them.

A command is a module with ``register``, which adds its parser and names the
function that runs it. That function takes the parsed arguments and returns the
exit code: 0 for success, 2 for invalid arguments, 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence

from penstock import _mode
from penstock._version import __version__
from penstock.cli import bench, check, demo, explain, proxy, serve, top

DONE = 0
BAD_ARGUMENTS = 2
INTERRUPTED = 130


def version() -> str:
    return f"penstock {__version__} ({_mode.describe()}, Python {platform.python_version()})"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock", description="Rate limits by rules: serve, check and measure them."
    )
    parser.add_argument("--version", action="store_true", help="show the version and the core")
    commands = parser.add_subparsers(title="commands", metavar="<command>")
    demo.register(commands)
    check.register(commands)
    explain.register(commands)
    serve.register(commands)
    proxy.register(commands)
    top.register(commands)
    bench.register(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; argparse itself exits with 2 on bad arguments."""
    parser = build_parser()
    parsed = parser.parse_args(explain.sorted_out(sys.argv[1:] if arguments is None else arguments))
    if parsed.version:
        print(version())
        return DONE
    if not hasattr(parsed, "run"):
        parser.print_help(sys.stderr)
        return BAD_ARGUMENTS
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the shell's prompt on a line of its own
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe (`penstock demo | head`). Python would flush stdout
        # once more at exit and complain: redirect it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
