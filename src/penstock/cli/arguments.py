"""What several commands share: options, exit codes and messages."""

from __future__ import annotations

import argparse
import sys
from typing import TypeAlias

# A string, because argparse's class takes no [] at run time.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FAILED = 1
BAD_ARGUMENTS = 2


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
