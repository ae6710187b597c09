"""``penstock export``: limits as configuration of nginx, Envoy, nftables or HAProxy."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from penstock.cli.arguments import FAILED, Commands, add_merge_domains, complain, counted
from penstock.cli.logs import add_log_options, clear_progress, open_requests, trust_of
from penstock.errors import PenstockError
from penstock.replay.exporting.export import TARGETS, Export, export, keys_of
from penstock.replay.exporting.items import ExportError


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write limits as configuration of nginx, Envoy, nftables or HAProxy",
        description="Translates rules for programs that refuse requests earlier, and prints their"
        " configuration. What cannot be said there is refused, with file and line. Exit code 0;"
        " 1: something cannot be exported.",
        epilog="example: penstock export rules.yaml --to nginx --log access.log > limits.conf",
    )
    parser.add_argument("rules", metavar="RULES", help="a file or a folder of YAML")
    parser.add_argument("--to", required=True, choices=tuple(TARGETS), help="the target")
    parser.add_argument(
        "--approximate",
        action="store_true",
        help="permit what is not exact; comments then say what differs",
    )
    parser.add_argument(
        "--never-above",
        action="store_true",
        help="approximate so that no window admits more than the rule, but some admit less",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="LOG",
        help="count the keys in this log, for the sizes of zones, tables and sets",
    )
    sizes.add_argument("--keys", type=int, metavar="N", help="how many keys each rule has")
    parser.add_argument(
        "--compare",
        metavar="LOG",
        help="report which requests the configuration would have decided differently",
    )
    parser.add_argument(
        "--rule", action="append", default=[], metavar="ID", help="export this rule only"
    )
    parser.add_argument(
        "--port",
        type=int,
        action="append",
        metavar="PORT",
        help="a port that nftables limits (default: 80 and 443)",
    )
    parser.add_argument("--domain", help="the domain, if there are several")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it to a file")
    add_merge_domains(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from penstock.rules.reading.loading import load_rules

    if arguments.keys is not None and arguments.keys < 1:
        return complain("export", "--keys is a number of at least 1")
    try:
        rules = load_rules([arguments.rules], merge_domains=arguments.merge_domains)
        keys: dict[str, int] | int | None = arguments.keys
        if arguments.log:
            keys = keys_of(
                rules,
                open_requests(arguments, arguments.log),
                trust=trust_of(arguments),
                dimensions=arguments.dimension,
                domain=arguments.domain,
            )
        made = export(
            rules,
            arguments.to,
            approximate=arguments.approximate,
            never_above=arguments.never_above,
            keys=keys,
            only=arguments.rule,
            dimensions=arguments.dimension,
            domain=arguments.domain,
            ports=arguments.port or (80, 443),
        )
        compared = [] if not arguments.compare else _compared(made, arguments)
    except ExportError as error:
        for problem in error.problems:
            print(f"penstock export: {problem}", file=sys.stderr)
        return FAILED
    except (PenstockError, ValueError) as error:
        return complain("export", error)
    finally:
        clear_progress(arguments.quiet)
    if arguments.output is not None:
        try:
            arguments.output.write_text(made.text)
        except OSError as error:
            return complain("export", f"{arguments.output}: {error.strerror}")
    else:
        print(made.text, end="")
    for warning in made.warnings:
        print(f"penstock export: {warning}", file=sys.stderr)
    for line in compared:
        print(line, file=sys.stderr)
    return 0


def _compared(made: Export, arguments: argparse.Namespace) -> list[str]:
    """What it would have decided differently, for people."""
    from penstock.replay.rendering.sections import number, safe, share

    report = made.compare(open_requests(arguments, [arguments.compare]), trust=trust_of(arguments))
    change = report.change
    assert change is not None
    differ = change.newly_refused + change.newly_allowed
    if not differ:
        return [f"{arguments.compare}: the same decision on all {number(report.requests)} requests"]
    part = share(differ / report.requests)
    lines = [
        f"{arguments.compare}: {part} of {number(report.requests)} requests would be decided"
        f" differently: {number(change.newly_refused)} refused that the rules admit,"
        f" {number(change.newly_allowed)} admitted that the rules refuse, from"
        f" {counted(change.clients_affected, 'client')}"
    ]
    for client, refused, allowed in change.clients[:5]:
        lines.append(f"  {safe(client)}: {refused} refused, {allowed} admitted")
    return lines
