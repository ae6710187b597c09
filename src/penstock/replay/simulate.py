"""simulate: what rules would have done to the requests of a log.

>>> from penstock.replay import Requests, simulate
>>> rules = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "2/minute"}]}
>>> requests = [{"time": 1_700_000_000 + n, "remote_address": "192.0.2.7"} for n in range(5)]
>>> simulate(rules, requests).refused
3
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import LimitError
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.request import Request
from penstock.limits import Limit
from penstock.replay import cautions
from penstock.replay.deciding.replay import needs, replay_of
from penstock.replay.deciding.settings import Settings
from penstock.replay.reading.blocks import Block, count_of
from penstock.replay.reading.logs import LogRequests, read_log
from penstock.replay.reading.requests import Requests
from penstock.replay.report import AlgorithmRow, Change, Report, rule_report
from penstock.rules.model import Domain, RuleLimit, RuleSet, Step
from penstock.rules.reading.loading import load_rules, read_rules

DEFAULT_MEMORY = 1 << 30
ALGORITHMS = ("token_bucket", "fixed_window", "sliding_window", "sliding_log")
RulesLike = RuleSet | str | Path | Mapping[str, Any]
RequestsLike = Requests | str | Path | Iterable[Mapping[str, Any]]
_TOP = 10


def simulate(
    rules: RulesLike,
    requests: RequestsLike,
    *,
    against: RulesLike | None = None,
    trust: Trust = NOBODY_TRUSTED,
    dimensions: Mapping[str, Dimension[Request]] | None = None,
    domain: str | None = None,
    cost: str | None = None,
    algorithms: bool = False,
    memory: int = DEFAULT_MEMORY,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Decide on every request by the rules, at the time that the log says.

    ``rules``: a file, the text of one, the same as a dict, or a `RuleSet`. ``requests``: a log
    file, mappings, or `Requests`. ``against``: older rules to compare with. ``trust``,
    ``dimensions`` and ``domain`` are those of middleware. ``cost``: a number of the log, such as
    ``"bytes"``, by which requests count. ``algorithms``: compare the algorithms. ``memory``: the
    most bytes for keys and texts of the log.

    If it is interrupted by Ctrl-C, or needs more memory, the report is about what was read so far.
    """
    source = as_requests(requests)
    settings = Settings(trust, dict(dimensions or {}), domain, cost).reading(source.fields)
    fields = source.fields
    variants = [("rules", as_rules(rules))]
    if against is not None:
        variants.append(("against", as_rules(against)))
    if algorithms:
        variants += [(name, with_algorithm(variants[0][1], name)) for name in ALGORITHMS]
    wants = [needs(each, settings) for _, each in variants]
    words: set[str] = set()
    for used, _ in wants:
        words.update(fields if used is None else used)
    if against is not None:
        words.add("peer")
    source.want(words, {number for _, numbers in wants for number in numbers})
    replays = [replay_of(each, source, settings) for _, each in variants]
    report = Report(notes=list(source.notes))
    comparison = _Comparison(source) if against is not None else None
    began = time.monotonic()
    refused_before = 0
    try:
        for block in source.blocks():
            outcomes = [replay.feed(block) for replay in replays]
            if comparison is not None:
                comparison.add(block, outcomes[0], outcomes[1])
            report.first = report.first or block.times[0]
            report.last = block.times[block.n - 1]
            report.requests += block.n
            if "status" in source.numbers:
                column = block.numbers[source.numbers.index("status")]
                refused_before += count_of(column, block.n, 429)
            if progress is not None:
                progress(report)
            report.memory = source.bytes + sum(replay.bytes for replay in replays)
            if report.memory > memory:
                report.stopped = cautions.out_of_memory(report.requests, memory)
                break
    except KeyboardInterrupt:
        report.interrupted = True
    outcome = replays[0].outcome()
    report.allowed, report.refused = outcome.allowed, outcome.refused
    report.requests = outcome.allowed + outcome.refused + outcome.ambiguous
    report.ambiguous, report.unmatched = outcome.ambiguous, outcome.unmatched
    report.rules = [rule_report(tally) for tally in outcome.rules]
    report.way = outcome.way
    report.lines, report.malformed = source.lines, source.malformed
    if isinstance(source, LogRequests):
        report.malformed_lines = [
            (name, line, text.decode("utf-8", "replace")) for name, line, text in source.shown
        ]
    if comparison is not None:
        report.change = comparison.change()
    if algorithms:
        for (name, _), replay in list(zip(variants, replays, strict=True))[-len(ALGORITHMS) :]:
            result = replay.outcome()
            touched = sum(tally.tally.touched() for tally in result.rules)
            report.algorithms.append(AlgorithmRow(name, result.refused, touched))
    report.seconds = time.monotonic() - began
    report.warnings = [
        *cautions.warnings_of(report, variants[0][1], source, refused_before),
        *cautions.unmatched_warnings(report, settings),
        *cautions.one_key_warnings(report, fields),
    ]
    return report


class _Comparison:
    """What new rules decide otherwise than old ones, and for whom."""

    def __init__(self, source: Requests) -> None:
        self._source = source
        self._peer = source.words.index("peer") if "peer" in source.words else -1
        self._same = 0
        self._refused: Counts[int] = Counts()
        self._allowed: Counts[int] = Counts()

    def add(self, block: Block, new: Any, old: Any) -> None:
        if new == old:
            self._same += block.n
            return
        for at in range(block.n):
            if new[at] == old[at]:
                self._same += 1
                continue
            client = block.words[self._peer][at] if self._peer >= 0 else 0
            (self._refused if new[at] else self._allowed)[client] += 1

    def change(self) -> Change:
        affected = self._refused + self._allowed
        clients = [
            (self._name(client), self._refused[client], self._allowed[client])
            for client, _ in affected.most_common(_TOP)
        ]
        return Change(
            self._refused.total(), self._allowed.total(), self._same, clients, len(affected)
        )

    def _name(self, number: int) -> str:
        if self._peer < 0:
            return "-"
        text = self._source.interners[self._peer].text(number)
        return "-" if text is None else text.decode("utf-8", "replace")


def as_requests(requests: RequestsLike) -> Requests:
    if isinstance(requests, Requests):
        return requests
    if isinstance(requests, str | Path):
        return read_log(requests)
    return Requests.of(requests)


def as_rules(rules: RulesLike) -> RuleSet:
    if isinstance(rules, RuleSet):
        return rules
    if isinstance(rules, Path) or (isinstance(rules, str) and "\n" not in rules):
        return load_rules([rules])
    return read_rules(rules)


def with_algorithm(rules: RuleSet, algorithm: str) -> RuleSet:
    """The rules with another algorithm for each limit. One that has it already stays as it is."""

    def changed(limits: tuple[RuleLimit, ...]) -> tuple[RuleLimit, ...]:
        return tuple(replace(each, limit=_limit(each.limit, algorithm)) for each in limits)

    def step(each: Step) -> Step:
        rule = each.rule
        if rule is not None:
            rule = replace(
                rule,
                limits=changed(rule.limits),
                schedule=tuple(
                    replace(period, limits=changed(period.limits)) for period in rule.schedule
                ),
            )
        return replace(each, rule=rule, children=tuple(step(child) for child in each.children))

    domains: dict[str, Domain] = {
        name: replace(domain, steps=tuple(step(each) for each in domain.steps))
        for name, domain in rules.domains.items()
    }
    return replace(rules, domains=domains)


def _limit(limit: Limit, algorithm: str) -> Limit:
    if limit.amount == 0 or limit.algorithm == algorithm:
        return limit  # with its burst and all other options
    try:
        return Limit(limit.amount, f"{limit.period_ns}ns", algorithm=algorithm)
    except LimitError:  # a sliding log has a longest length
        return limit
