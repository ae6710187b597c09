"""``penstock recommend``: which limit fits the requests of a log."""

from __future__ import annotations

import argparse
import json
import sys

from penstock.cli.arguments import FAILED, Commands, complain, reader_may_leave
from penstock.cli.logs import (
    add_log_options,
    add_memory,
    add_shapes,
    clear_progress,
    open_requests,
    trust_of,
    write_files,
)
from penstock.errors import PenstockError

INTERRUPTED = 130


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "recommend",
        help="find a limit that fits the requests of a log",
        description="Reads a log and recommends a limit: between what people need and what"
        " programs take, if there is a gap, and else a quantile with headroom. Prints what it"
        " would have refused, whom, and rules to paste. Exit code 0; 1: there is too little to"
        " recommend from; 130: interrupted, after what was found so far.",
        epilog="example: penstock recommend access.log.gz --by path=/login,remote_address",
    )
    parser.add_argument("logs", nargs="+", metavar="LOG", help="files, patterns, or - for stdin")
    parser.add_argument(
        "--by",
        default="remote_address",
        metavar="KEYS",
        help="what a limit is for: remote_address (default), user, path=/login,remote_address ...",
    )
    parser.add_argument(
        "--quantile", type=float, default=0.999, help="of the keys that pass (default 0.999)"
    )
    parser.add_argument(
        "--headroom", type=float, default=1.5, help="above what they need (default 1.5)"
    )
    add_memory(parser, "beyond it, some keys are left out as a whole, never the heaviest")
    add_shapes(parser, "windows and keys")
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from penstock.replay.deciding.settings import read_dimensions
    from penstock.replay.recommending.recommend import recommend
    from penstock.replay.rendering.advice import sections
    from penstock.replay.rendering.tables import write_advice_csv
    from penstock.replay.rendering.terminal import print_sections

    try:
        advice = recommend(
            open_requests(arguments, arguments.logs),
            arguments.by,
            quantile=arguments.quantile,
            headroom=arguments.headroom,
            trust=trust_of(arguments),
            dimensions=read_dimensions(arguments.dimension),
            memory=arguments.memory,
        )
    except (PenstockError, ValueError) as error:
        return complain("recommend", error)
    finally:
        clear_progress(arguments.quiet)
    problem = write_files(advice, arguments.html, arguments.svg)
    if problem:
        return complain("recommend", problem)
    with reader_may_leave():
        if arguments.json:
            print(json.dumps(advice.as_dict(), ensure_ascii=True))
        elif arguments.csv:
            write_advice_csv(advice, sys.stdout)
        else:
            print_sections(sections(advice))
    if advice.interrupted:
        return INTERRUPTED
    return FAILED if advice.limit is None or advice.stopped else 0
