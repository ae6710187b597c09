"""``penstock explain``: which rule applies to a request, and why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from penstock.cli.arguments import BAD_ARGUMENTS, Commands, add_merge_domains
from penstock.cli.paint import Paint
from penstock.errors import PenstockError
from penstock.gate import Gate
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.verdict import Status
from penstock.rules.model import without_quotas
from penstock.rules.problems import did_you_mean
from penstock.rules.reading.loading import load_rules
from penstock.rules.walk import all_rules

BETWEEN = "\0--"  # something argparse does not interpret
REFUSED = 1


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "explain",
        help="show which rule applies to a request, and why",
        description="Matches descriptors against rules, level by level, and shows the decision for"
        " a first request. Nothing is counted. Exit code 0: allowed; 1: refused.",
        epilog="example: penstock explain rules.yaml plan=free user=42 -- path=/login ip=1.2.3.4",
    )
    parser.add_argument("file", metavar="FILE", help="a file or a folder of YAML")
    parser.add_argument(
        "pairs",
        nargs="*",
        metavar="KEY=VALUE",
        help="the pairs of a descriptor, in order; -- between two descriptors",
    )
    parser.add_argument("--domain", help="the domain, if there are several")
    parser.add_argument("--hits", type=int, default=1, help="number of hits (default 1)")
    add_merge_domains(parser)
    parser.set_defaults(run=run)


def reordered(arguments: Sequence[str]) -> list[str]:
    """The arguments, reordered for ``explain`` so that argparse can parse them.

    argparse drops ``--``, which separates descriptors here, and rejects positional arguments
    after an option.
    """
    if list(arguments[:1]) != ["explain"]:
        return list(arguments)
    options, positional = [], []
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "--":
            positional.append(BETWEEN)
        elif argument.startswith("-"):
            options.append(argument)
            if argument in ("--domain", "--hits"):
                options += [value for value in [next(rest, None)] if value is not None]
        else:
            positional.append(argument)
    return ["explain", *options, *positional]


def run(arguments: argparse.Namespace) -> int:
    paint = Paint(sys.stdout)
    try:
        descriptors = read_descriptors(arguments.pairs)
        rules = load_rules([arguments.file], merge_domains=arguments.merge_domains)
        gate = Gate(without_quotas(rules))
        meters = {rule.id: rule.meter for rule in all_rules(rules)}
        matchers = gate.matchers
        domain = only_domain(gate.compiled, arguments.domain)
        if domain not in matchers:
            names = ", ".join(sorted(matchers))
            raise PenstockError(
                f"no domain {domain!r}{did_you_mean(domain, matchers)}: there are {names:.200}"
            )
        verdict = gate.check(*descriptors, domain=domain, hits=arguments.hits)
    except PenstockError as error:
        print(f"{paint.red('error')} {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    for pairs, status in zip(descriptors, verdict.statuses, strict=True):
        print(paint.bold(" ".join(f"{key}={value}" for key, value in pairs)))
        for step in matchers[domain].trace(pairs):
            print("  " + str(step).replace("\n", "\n  "))
        print(f"  {_explanation(status, paint)}")
        meter = meters.get(status.rule.id) if status.rule is not None else None
        if meter is not None:
            print(
                f"  and takes {meter.meter} of the account {pairs[-1][1]!r}, if the ledger has some"
            )
    print(f"{paint.bold('the request')}: {paint.outcome(bool(verdict))}")
    return 0 if verdict else REFUSED


def read_descriptors(arguments: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    """``a=1 b=2 -- c=3`` as two descriptors, with `BETWEEN` in place of ``--``."""
    descriptors: list[list[tuple[str, str]]] = [[]]
    for argument in arguments:
        if argument == BETWEEN:
            descriptors.append([])
            continue
        key, equals, value = argument.partition("=")
        if not equals or not key:
            raise PenstockError(f"write a pair as KEY=VALUE, not {argument!r:.100}")
        descriptors[-1].append((key, value))
    if not all(descriptors):
        raise PenstockError("name at least one pair for each descriptor, such as user=42")
    return [tuple(pairs) for pairs in descriptors]


def _explanation(status: Status, paint: Paint) -> str:
    decision = status.decision
    if decision is None:
        return f"{paint.outcome(status.allowed)}: {status.reason}"
    shadow = paint.yellow(" (only in shadow)") if status.shadow else ""
    outcome = paint.outcome(decision.allowed)
    return f"{outcome} by {status.limit_text}, {decision.remaining} left after it{shadow}"
