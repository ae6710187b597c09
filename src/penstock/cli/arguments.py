"""Types and options that several commands share."""

from __future__ import annotations

import argparse
from typing import TypeAlias

# A string, because argparse's class takes no [] at run time.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_merge_domains(parser: argparse.ArgumentParser) -> None:
    """The files argument of commands that read rules."""
    parser.add_argument(
        "--merge-domains", action="store_true", help="a domain may be split over files"
    )
