"""What several commands take: where they register, and an option that they share."""

from __future__ import annotations

import argparse
from typing import TypeAlias

# A text, since at run time argparse's class takes no [].
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_merge_domains(parser: argparse.ArgumentParser) -> None:
    """For commands that read files of rules."""
    parser.add_argument(
        "--merge-domains", action="store_true", help="a domain may be split over files"
    )
