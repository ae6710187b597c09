"""``penstock simulate``: what rules would have done to the requests of a log."""

from __future__ import annotations

import argparse
import json
import sys

from penstock.cli.arguments import FAILED, Commands, add_merge_domains, complain, reader_may_leave
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
from penstock.replay.report import check_condition, fails

INTERRUPTED = 130


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "simulate",
        help="replay a log against rules: what would they have done?",
        description="Decides on every request of a log, or of synthetic traffic, by rules, at the"
        " time that the log says, and reports what they would have refused, and whom. Exit code"
        " 0; 1: a --fail-if holds; 130: interrupted, after the report of what was read.",
        epilog="example: penstock simulate rules.yaml 'access.log*' --fail-if 'refused > 0.1%'",
    )
    parser.add_argument("rules", metavar="RULES", help="a file or a folder of YAML")
    parser.add_argument("logs", nargs="*", metavar="LOG", help="files, patterns, or - for stdin")
    parser.add_argument("--against", metavar="RULES", help="older rules: what changes, for whom?")
    parser.add_argument(
        "--exported",
        metavar="TARGET",
        help="what would the rules decide differently in nginx, envoy, nftables or haproxy?",
    )
    parser.add_argument(
        "--traffic",
        metavar="TEXT",
        help='synthetic: "poisson 200/s keys 1000 zipf 1.1 for 1h, burst 50 every 10m"',
    )
    parser.add_argument("--algorithms", action="store_true", help="compare the algorithms")
    parser.add_argument(
        "--cost", metavar="NUMBER", help="count by a number of the log, such as bytes"
    )
    add_memory(parser, "beyond it, the report is about what was read until then (exit code 1)")
    parser.add_argument("--domain", help="the domain, if there are several")
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help="exit code 1 if it holds: 'refused > 0.1%%', 'api/user keys > 10'",
    )
    add_shapes(parser, "rules and keys")
    add_merge_domains(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from penstock.replay.deciding.settings import read_dimensions
    from penstock.replay.exporting.export import export
    from penstock.replay.rendering.sections import sections
    from penstock.replay.rendering.tables import write_csv
    from penstock.replay.rendering.terminal import print_sections
    from penstock.replay.simulate import simulate
    from penstock.replay.traffic import Traffic
    from penstock.rules.reading.loading import load_rules

    if bool(arguments.logs) == bool(arguments.traffic):
        return complain("simulate", "name the logs to replay, or give --traffic, not both")
    try:
        for condition in arguments.fail_if:
            check_condition(condition)
        merge = arguments.merge_domains
        rules = load_rules([arguments.rules], merge_domains=merge)
        against = None
        if arguments.against:
            against = load_rules([arguments.against], merge_domains=merge)
        if arguments.exported:
            if arguments.against:
                raise ValueError("--exported compares with the rules themselves: no --against")
            made = export(
                rules,
                arguments.exported,
                approximate=True,
                domain=arguments.domain,
                dimensions=arguments.dimension,
            )
            rules, against = made.means, made.rules
        requests = (
            Traffic(arguments.traffic)
            if arguments.traffic
            else open_requests(arguments, arguments.logs)
        )
        report = simulate(
            rules,
            requests,
            against=against,
            trust=trust_of(arguments),
            dimensions=read_dimensions(arguments.dimension),
            domain=arguments.domain,
            cost=arguments.cost,
            algorithms=arguments.algorithms,
            memory=arguments.memory,
        )
        failures = [reason for each in arguments.fail_if if (reason := fails(each, report))]
    except (PenstockError, ValueError) as error:
        return complain("simulate", error)
    finally:
        clear_progress(arguments.quiet)
    problem = write_files(report, arguments.html, arguments.svg)
    if problem:
        return complain("simulate", problem)
    with reader_may_leave():  # the exit code is that of the report all the same
        if arguments.json:
            print(json.dumps(report.as_dict(), ensure_ascii=True))
        elif arguments.csv:
            write_csv(report, sys.stdout)
        else:
            print_sections(sections(report))
    for failure in failures:
        print(f"penstock simulate: failed: {failure}", file=sys.stderr)
    if report.interrupted:
        return INTERRUPTED
    return FAILED if failures or report.stopped else 0
