"""What several commands share: options, exit codes and messages."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from penstock.rules.problems import nearest

# A string, because argparse's class takes no [] at run time.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FAILED = 1
BAD_ARGUMENTS = 2


class Parser(argparse.ArgumentParser):
    """Names the verb that was probably meant; options may stand between positional arguments.

    argparse by itself gives ``simulate new.yaml --against old.yaml access.log`` no log: where an
    option begins, it takes "no more" for an answer to ``LOG ...``. Parsers of commands have this
    class, too.
    """

    _is_mixing = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        positionals = self._get_positional_actions()
        verbs = any(action.nargs == argparse.PARSER for action in positionals)
        if self._is_mixing or verbs or not positionals:
            return super().parse_known_args(args, namespace)
        self._is_mixing = True  # it calls this method, twice
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if not isinstance(action, argparse._SubParsersAction):
            if action.choices is not None and value not in action.choices:
                names = list(map(str, action.choices))
                hint = nearest(str(value), names)
                raise argparse.ArgumentError(
                    action, f"invalid choice: {value!r}{hint}: use one of {', '.join(names)}"
                )
        elif value not in action.choices:
            names = list(action.choices)
            what = "command" if action.dest == "command" else "verb"
            others = ["--help", "--version"] if what == "command" else []
            hint = nearest(value, [*names, *others])
            self.error(f"unknown {what} {value!r}{hint}: use one of {', '.join(names)}")


def user_name() -> str:
    """Who makes a change, for the history."""
    try:
        return getpass.getuser()[:100]
    except (OSError, KeyError):
        return ""


def add_merge_domains(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--merge-domains", action="store_true", help="a domain may be split over files"
    )


def complain(command: str, error: object, code: int = BAD_ARGUMENTS) -> int:
    """Print an error; returns the exit code."""
    print(f"penstock {command}: {error}", file=sys.stderr)
    return code


def counted(count: int, noun: str, form: str = "") -> str:
    """``1 rule``, ``2 rules``"""
    return f"{count:{form}} {noun}" + ("" if count == 1 else "s")


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print in it what a reader need not read to the end (``| head``).

    Python would flush stdout once more at exit and complain about the closed pipe: it is
    redirected.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
