"""``penstock check``: reads rules and prints all problems."""

from __future__ import annotations

import argparse
import sys

from penstock.cli.arguments import FAILED, Commands, add_merge_domains, counted
from penstock.cli.paint import Paint
from penstock.errors import RulesError
from penstock.rules.problems import Problems
from penstock.rules.walk import all_rules

# Files with fewer rules are read too fast for a progress display.
_REPORT_EVERY = 10_000


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "check",
        help="check files of rules",
        description="Reads rules as a gate does, and prints all problems at once, with file, line"
        " and column. Exit code 0: the rules are valid; 1: they are not.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file or a folder of YAML")
    add_merge_domains(parser)
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from penstock.rules.reading.parse import load_files

    paint, problems = Paint(sys.stdout), Problems()
    terminal = sys.stderr.isatty()

    def progress(rules: int) -> None:
        if terminal and rules % _REPORT_EVERY == 0:
            print(f"\r{rules} rules", end="", file=sys.stderr, flush=True)

    rules = None
    try:
        rules = load_files(
            arguments.files,
            merge_domains=arguments.merge_domains,
            problems=problems,
            progress=progress,
        )
    except RulesError as error:
        for problem in error.problems:
            print(f"{paint.red('error')}   {problem}")
    if terminal:
        print("\r", end="", file=sys.stderr)
    for warning in sorted(problems.warnings):
        print(f"{paint.yellow('warning')} {warning}")
    if rules is None or (arguments.strict and problems.warnings):
        count = len(problems.errors) + (len(problems.warnings) if arguments.strict else 0)
        print(f"{counted(max(1, count), 'problem')}: these rules are invalid")
        return FAILED
    names = ", ".join(sorted(rules.domains))
    count = sum(1 for _ in all_rules(rules))
    print(f"{paint.green('ok')}: {counted(count, 'rule')} in {names:.200}")
    return 0
