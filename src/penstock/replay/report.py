"""Report: what rules would have done, as plain objects."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.errors import PenstockError
from penstock.replay.behaviour import describe
from penstock.replay.deciding.tallies import KeyTally, RuleTally
from penstock.rules.walk import limits_of

SECOND = 1_000_000_000
TOP = 10
_POINTS = 240  # of a timeline


@dataclass(frozen=True, slots=True)
class Timeline:
    """Counts of ``width`` nanoseconds each, from ``start`` on."""

    start: int
    width: int
    asked: list[int]
    refused: list[int]


@dataclass(frozen=True, slots=True)
class Moment:
    """Some seconds in which a rule refused much."""

    time: int
    seconds: float
    asked: int
    refused: int


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What one rule did. Of a rule in shadow, ``refused`` is what it would have refused."""

    id: str
    limits: list[str]
    shadow: bool
    asked: int
    refused: int
    keys: int
    keys_refused: int
    timeline: Timeline
    worst: list[Moment]
    top: list[KeyTally]

    @property
    def allowed(self) -> int:
        return self.asked - self.refused

    @property
    def refused_share(self) -> float:
        return self.refused / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """The difference that new rules make to old ones."""

    newly_refused: int
    newly_allowed: int
    unchanged: int
    # By client: (address, newly refused, newly allowed), the most affected first.
    clients: list[tuple[str, int, int]]
    clients_affected: int


@dataclass(frozen=True, slots=True)
class AlgorithmRow:
    """The same rules with another algorithm for all limits that can have it."""

    algorithm: str
    refused: int
    keys_refused: int


@dataclass(slots=True)
class Report:
    """What became of the requests of a log under some rules."""

    requests: int = 0
    allowed: int = 0
    refused: int = 0
    ambiguous: int = 0
    unmatched: int = 0
    first: int = 0
    last: int = 0
    lines: int = 0
    malformed: int = 0
    malformed_lines: list[tuple[str, int, str]] = field(default_factory=list)
    rules: list[RuleReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    change: Change | None = None
    algorithms: list[AlgorithmRow] = field(default_factory=list)
    interrupted: bool = False
    stopped: str = ""  # why not all of the log was read
    memory: int = 0  # bytes for keys and texts
    seconds: float = 0.0
    way: str = "fast"

    @property
    def refused_share(self) -> float:
        return self.refused / self.requests if self.requests else 0.0

    def rule(self, id: str) -> RuleReport:
        """A rule by its id, such as ``api/user``."""
        for rule in self.rules:
            if rule.id == id:
                return rule
        known = ", ".join(rule.id for rule in self.rules)
        raise KeyError(f"no rule {id!r}; there are {known}")

    def busiest(self) -> list[RuleReport]:
        """The rules that were asked at all, those that refused most first."""
        return sorted((rule for rule in self.rules if rule.asked), key=lambda each: -each.refused)

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Times are in seconds since 1970."""
        return {
            "requests": self.requests,
            "allowed": self.allowed,
            "refused": self.refused,
            "refused_share": self.refused_share,
            "ambiguous": self.ambiguous,
            "unmatched": self.unmatched,
            "first": self.first / SECOND,
            "last": self.last / SECOND,
            "lines": self.lines,
            "malformed": self.malformed,
            "interrupted": self.interrupted,
            "stopped": self.stopped,
            "memory": self.memory,
            "rules": [_rule_dict(rule) for rule in self.rules],
            "algorithms": [
                {"algorithm": row.algorithm, "refused": row.refused, "keys": row.keys_refused}
                for row in self.algorithms
            ],
            "change": None
            if self.change is None
            else {
                "newly_refused": self.change.newly_refused,
                "newly_allowed": self.change.newly_allowed,
                "clients_affected": self.change.clients_affected,
                "clients": [
                    {"client": client, "newly_refused": refused, "newly_allowed": allowed}
                    for client, refused, allowed in self.change.clients
                ],
            },
            "notes": self.notes,
            "warnings": self.warnings,
        }


def _rule_dict(rule: RuleReport) -> dict[str, Any]:
    return {
        "id": rule.id,
        "limits": rule.limits,
        "shadow": rule.shadow,
        "asked": rule.asked,
        "allowed": rule.allowed,
        "refused": rule.refused,
        "refused_share": rule.refused_share,
        "keys": rule.keys,
        "keys_refused": rule.keys_refused,
        "timeline": {
            "start": rule.timeline.start / SECOND,
            "seconds": rule.timeline.width / SECOND,
            "asked": rule.timeline.asked,
            "refused": rule.timeline.refused,
        },
        "worst": [
            {
                "time": moment.time / SECOND,
                "seconds": moment.seconds,
                "asked": moment.asked,
                "refused": moment.refused,
            }
            for moment in rule.worst
        ],
        "top": [
            {
                "key": key.key,
                "asked": key.asked,
                "refused": key.refused,
                "agent": key.agent,
                "behaviour": describe(key),
            }
            for key in rule.top
        ],
    }


def rule_report(tally: RuleTally) -> RuleReport:
    rule = tally.rule
    bins = tally.tally.timeline()
    start, width = max(0, tally.tally.start), tally.tally.width
    asked, refused = [each for each, _ in bins], [each for _, each in bins]
    worst = [
        at
        for at in heapq.nsmallest(3, range(len(bins)), key=lambda at: -refused[at])
        if refused[at]
    ]
    join = max(1, -(-len(bins) // _POINTS))
    starts = range(0, len(bins), join)
    limits = [str(limit.limit) for limit in rule.limits]
    for where, others in limits_of(rule):
        if where != "limits":
            limits += [f"{limit.limit} ({where})" for limit in others]
    return RuleReport(
        id=rule.id,
        limits=limits or (["closed"] if rule.closed else ["unlimited"]),
        shadow=rule.shadow,
        asked=tally.tally.asked,
        refused=tally.tally.refused,
        keys=tally.tally.keys,
        keys_refused=tally.tally.touched(),
        timeline=Timeline(
            start,
            width * join,
            [sum(asked[at : at + join]) for at in starts],
            [sum(refused[at : at + join]) for at in starts],
        ),
        worst=[Moment(start + at * width, width / SECOND, asked[at], refused[at]) for at in worst],
        top=tally.top(TOP),
    )


_CONDITION = re.compile(
    r"\s*(?:(?P<rule>\S+)\s+)?(?P<what>refused|keys|ambiguous|malformed|unmatched|newly_refused)"
    r"\s*(?P<sign>>=|<=|>|<|==)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<percent>%?)\s*"
)


def check_condition(condition: str) -> re.Match[str]:
    """What a condition says; `PenstockError` if it cannot be read."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise PenstockError(
            f"a condition is written like 'refused > 0.1%', 'api/user refused > 10' or"
            f" 'keys > 5', not {condition!r:.100}"
        )
    return match


def fails(condition: str, report: Report) -> str:
    """Why a report fails a condition such as ``refused > 0.1%``; "" if it does not."""
    match = check_condition(condition)
    what, of = match["what"], match["rule"]
    if of is not None:
        try:
            rule = report.rule(of)
        except KeyError as error:
            raise PenstockError(str(error.args[0])) from None
        values = {"refused": (rule.refused, rule.asked), "keys": (rule.keys_refused, rule.keys)}
        if what not in values:
            raise PenstockError(f"of a rule, a condition is about refused or keys, not {what}")
        value, whole = values[what]
    elif what == "keys":
        value = max((rule.keys_refused for rule in report.rules if not rule.shadow), default=0)
        whole = max((rule.keys for rule in report.rules if not rule.shadow), default=0)
    elif what == "newly_refused":
        value = 0 if report.change is None else report.change.newly_refused
        whole = report.requests
    else:
        value = getattr(report, what)
        whole = report.lines if what == "malformed" else report.requests
    bound = float(match["number"])
    measured = 100 * value / whole if match["percent"] and whole else float(value)
    sign = match["sign"]
    holds = {
        ">": measured > bound,
        "<": measured < bound,
        ">=": measured >= bound,
        "<=": measured <= bound,
        "==": measured == bound,
    }[sign]
    if not holds:
        return ""
    unit = match["percent"]
    return f"{condition.strip()}: it is {measured:.4g}{unit}"


def shown_time(time: int) -> str:
    return datetime.fromtimestamp(time // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def sparkline(values: Sequence[int], width: int = 40) -> str:
    """A line of small bars."""
    if not values or not max(values):
        return ""
    join = max(1, -(-len(values) // width))
    joined = [sum(values[at : at + join]) for at in range(0, len(values), join)]
    most = max(joined)
    return "".join(
        " " if not value else "▁▂▃▄▅▆▇█"[min(7, value * 8 // (most + 1))] for value in joined
    )
