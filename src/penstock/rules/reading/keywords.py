"""The keywords of a file of rules: every key, what it takes, and what it is for.

The parser, its hints and the schema for editors all use this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.limit_options import (
    ALGORITHMS,
    ALIGNMENTS,
    FAILURE_POLICIES,
    MOST_CELLS,
    MOST_UNITS,
    ROUNDINGS,
)
from penstock.rules.problems import nearest
from penstock.rules.reading.tree import shown

# The kinds of values. Scalars are read by their kind alone; the others have their own readers.
TEXT, WHOLE, NUMBER, FLAG = "text", "whole", "number", "flag"
SCALARS = frozenset((TEXT, WHOLE, NUMBER, FLAG))
MAPPING, LIST = "mapping", "list"  # of the section that is named, if one is
LIMITS, LIMITS_BY_TIER = "limits", "limits by tier"
PLANS_BY_NAME = "plans by name"
VALUES, VALUES_BY_KEY = "values", "values by key"
DAY_NAMES, GROUP, LEASE, ANYTHING = "day names", "group", "lease", "anything"

# Slots of one key: releasing one takes longer the more there are.
MOST_SLOTS = 100_000
UNITS = ("second", "minute", "hour", "day", "week", "month", "year")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# An approximation for editors: only the parser knows what a limit is.
LIMIT_TEXT = r"^\s*[0-9][0-9_.,]*\s*[A-Za-z]*\s*(/|[pP][eE][rR]\b).*[A-Za-zµ]"
# Of plans: calendar periods, no others.
PERIODS = ("hour", "day", "week", "month", "year")
ALLOWANCE_TEXT = r"^\s*[0-9][0-9_,]*\s*[kM]?\s*(/|per)\s*[A-Za-z]+\s*$"
TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"


@dataclass(frozen=True, slots=True)
class Keyword:
    """One key of one section."""

    name: str
    kind: str
    about: str
    required: bool = False
    may_be_empty: bool = False
    choices: tuple[str, ...] = ()
    any_case: bool = False
    pattern: str | None = None  # for the schema; the parser has better messages
    above: int | None = None  # for numbers with a fraction
    least: int | None = None
    most: int | None = None
    section: str | None = None  # of the mapping, or of the items of the list


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of mapping. ``home`` says where its keys belong, for misplaced keys."""

    name: str
    home: str
    keywords: Mapping[str, Keyword]
    required: tuple[str, ...]
    reserved: frozenset[str]


def _section(name: str, home: str, *keywords: Keyword, reserved: tuple[str, ...] = ()) -> Section:
    required = tuple(keyword.name for keyword in keywords if keyword.required)
    return Section(
        name, home, {keyword.name: keyword for keyword in keywords}, required, frozenset(reserved)
    )


_POLICY = Keyword(
    "on_failure", TEXT, "What happens while the shared store cannot be asked.",
    choices=FAILURE_POLICIES,
)  # fmt: skip
_SHARE = Keyword(
    "share", NUMBER, "With on_failure: local, the part of the limit that is this process's.",
    above=0, most=1,
)  # fmt: skip
_ALGORITHM = Keyword("algorithm", TEXT, "How hits are counted.", choices=tuple(ALGORITHMS))
_ZONE = Keyword("tz", TEXT, "A time zone such as Asia/Taipei.")
_LIMITS = Keyword("limits", LIMITS, "One limit or a list of them: '100/minute', or a mapping.")

FILE = _section(
    "file", "at the top of the file",
    Keyword("domain", TEXT, "The name that requests ask for.", required=True),
    Keyword("descriptors", LIST, "The steps of the first level.", section="step"),
    Keyword("defaults", MAPPING, "For all limits of the file that do not say otherwise.",
         section="defaults"),
    Keyword("plans", PLANS_BY_NAME, "Plans of a ledger: what accounts may use in each period."),
    Keyword("allow", VALUES_BY_KEY, "By key, values that are never counted, for the whole domain."),
    Keyword("deny", VALUES_BY_KEY, "By key, values that are always refused, for the whole domain."),
)  # fmt: skip

DEFAULTS = _section("defaults", "under 'defaults'", _ALGORITHM, _POLICY, _SHARE)

STEP = _section(
    "step", "beside the 'key' of a step",
    Keyword("key", TEXT, "The key of the pair that this step matches.", required=True),
    Keyword("value", TEXT, "A text, with * as a wildcard; without it, any value matches.",
         may_be_empty=True),
    Keyword("descriptors", LIST, "The steps of the next level.", section="step"),
    Keyword("rate_limit", MAPPING, "One limit, in the words of Envoy's rate limit service.",
         section="rate_limit"),
    _LIMITS,
    Keyword("plans", MAPPING, "Other limits by tier.", section="plans"),
    Keyword("split", MAPPING, "Other limits for a stable part of the keys.", section="split"),
    Keyword("schedule", LIST, "Other limits at some hours.", section="period"),
    Keyword("concurrency", WHOLE, "How many requests may run at once.", least=1,
         most=MOST_SLOTS),
    Keyword("slot_lease", TEXT, "With concurrency: when a slot that nobody released is free again;"
            " default 30s."),
    Keyword("lease", LEASE, "Whether hot keys are decided from leases, if the store can lease:"
            " true, false, or a horizon.", section="lease"),
    Keyword("quota", MAPPING, "Takes from the quota of an account, in a ledger, beside its limits.",
         section="quota"),
    Keyword("cost", WHOLE, "Units that one hit takes; default 1.", least=1, most=MOST_UNITS),
    Keyword("group", GROUP, "Addresses of one network share a counter: 'subnet', or lengths.",
         section="group"),
    Keyword("allow", VALUES, "Values of this step that are not counted."),
    Keyword("deny", VALUES, "Values of this step that are refused."),
    Keyword("shadow_mode", FLAG, "Counted, never refused."),
    Keyword("quota_mode", FLAG,
            "Refused if all descriptors in quota mode are over, not if some are."),
    Keyword("share_threshold", FLAG, "With a wildcard: all values that match share one counter."),
    Keyword("detailed_metric", FLAG, "The values become part of the metric's name."),
    Keyword("value_to_metric", FLAG, "The value of this step becomes part of the metric's name."),
    Keyword("metadata", ANYTHING, "Any mapping; handed through."),
    reserved=("priority",),
)  # fmt: skip

RATE_LIMIT = _section(
    "rate_limit", "under 'rate_limit'",
    Keyword("unit", TEXT, "The length of the window.", choices=UNITS, any_case=True),
    Keyword("requests_per_unit", WHOLE, "How many in a window; 0 refuses everything.",
         least=0, most=MOST_UNITS),
    Keyword("unlimited", FLAG, "Allowed and not counted; then no unit."),
    Keyword("name", TEXT, "For 'replaces' and metrics."),
    Keyword("replaces", LIST, "If this rule matches, limits of these names are not counted.",
         section="replaces"),
)  # fmt: skip

REPLACES = _section(
    "replaces", "under 'replaces'",
    Keyword("name", TEXT, "The name of a limit that this one replaces.", required=True),
)  # fmt: skip

LIMIT = _section(
    "limit", "in a mapping under 'limits'",
    Keyword("limit", TEXT, "The limit as text: '100/minute', '1000/hour burst 2000'.",
         required=True, pattern=LIMIT_TEXT),
    Keyword("name", TEXT, "For 'replaces', metrics and switches."),
    _ALGORITHM,
    Keyword("burst", WHOLE, "How much may come at once.", least=1, most=MOST_UNITS),
    Keyword("initial", WHOLE, "Units that a key begins with.", least=0, most=MOST_UNITS),
    Keyword("debt", WHOLE, "Units that one hit may borrow.", least=1, most=MOST_UNITS),
    Keyword("cells", WHOLE, "How finely a sliding window is counted.", least=1, most=MOST_CELLS),
    Keyword("rounding", TEXT, "Which way a sliding window rounds its estimate.", choices=ROUNDINGS),
    Keyword("align", TEXT, "Where a fixed window starts.", choices=ALIGNMENTS),
    _ZONE,
    Keyword("count_rejected", FLAG, "A sliding log that remembers refused hits, too."),
    Keyword("lockout", TEXT, "After a refusal, refuse for so long: 15m."),
    Keyword("soft", TEXT, "An overrun that is let through for a while: 20% for 10m."),
    Keyword("warm_up", TEXT, "Ramp up to the whole rate in so long: 1h."),
    _POLICY,
    _SHARE,
)  # fmt: skip

PLANS = _section(
    "plans", "under 'plans'",
    Keyword("by", TEXT, "The key of the pair that says the tier.", required=True),
    Keyword("tiers", LIMITS_BY_TIER, "Limits by tier; an empty list is no limit.", required=True),
    Keyword("default", TEXT, "The tier for values that are no tier; without it, no limit."),
)  # fmt: skip

SPLIT = _section(
    "split", "under 'split'",
    Keyword("percent", NUMBER, "How many of the keys, above 0 and at most 100.", required=True,
         above=0, most=100),
    Keyword("limits", LIMITS, "The limits that they get.", required=True),
    Keyword("salt", TEXT, "Another salt chooses other keys; default is the rule's name."),
)  # fmt: skip

PERIOD = _section(
    "period", "under 'schedule'",
    Keyword("days", DAY_NAMES, "The days on which it starts: mon to sun; default all."),
    Keyword("from", TEXT, "When it starts: \"09:00\".", required=True, pattern=f"^{TIME}$"),
    Keyword("to", TEXT, "Before when it ends: \"18:00\", at most \"24:00\".", required=True,
         pattern=f"^({TIME}|24:00)$"),
    _ZONE,
    Keyword("limits", LIMITS, "The limits in this time.", required=True),
)  # fmt: skip

GROUP_LENGTHS = _section(
    "group", "under 'group'",
    Keyword("ipv4", WHOLE, "Bits of an IPv4 address that make a network; default 24.",
         least=1, most=32),
    Keyword("ipv6", WHOLE, "Bits of an IPv6 address that make a network; default 64.",
         least=1, most=128),
)  # fmt: skip

LEASE_TERMS = _section(
    "lease", "under 'lease'",
    Keyword("horizon", TEXT, "A lease is sized for the demand of so long: 1ms to 1s.",
         required=True),
)  # fmt: skip

QUOTA = _section(
    "quota", "under 'quota'",
    Keyword("meter", TEXT, "What is counted: the meter of a plan.", required=True),
    Keyword("plan_by", TEXT, "The key of the pair that names the plan of accounts that are new."),
    Keyword("on_failure", TEXT, "What happens while neither the ledger nor the store can be asked.",
         choices=("closed", "open")),
)  # fmt: skip

ALLOWANCE = _section(
    "allowance", "in a plan at the top of the file",
    Keyword("amount", TEXT, "Units in each period: 10000/month.", required=True,
         pattern=ALLOWANCE_TEXT),
    Keyword("rollover", WHOLE, "Unused units that are carried into the next period.", least=0,
         most=MOST_UNITS),
    Keyword("overdraft", WHOLE, "Units that may be used beyond what was granted.", least=0,
         most=MOST_UNITS),
)  # fmt: skip

LIST_FILE = _section(
    "list_file", "in a list of 'allow' or 'deny'",
    Keyword("file", TEXT, "A file beside this one: one entry a line, # for remarks.",
         required=True),
)  # fmt: skip

# A misplaced key is looked for in this order.
SECTIONS = {
    section.name: section
    for section in (
        FILE, STEP, RATE_LIMIT, LIMIT, PLANS, SPLIT, PERIOD, DEFAULTS, REPLACES, GROUP_LENGTHS,
        LEASE_TERMS, QUOTA, ALLOWANCE, LIST_FILE,
    )
}  # fmt: skip


def unknown_key(name: str, section: Section) -> tuple[str, str | None]:
    """The message for a key that this section does not have, and which was probably meant."""
    if name in section.reserved:
        return f"{name!r} is reserved for a later version", None
    if f"{name}s" in section.keywords:
        return f"unknown key {shown(name)} (did you mean '{name}s'?)", f"{name}s"
    home = next((other.home for other in SECTIONS.values() if name in other.keywords), None)
    if home is not None:
        return f"{name!r} belongs {home}", None
    hint = nearest(name, section.keywords)
    if not hint:
        return f"unknown key {shown(name)}: expected one of {', '.join(section.keywords)}", None
    meant = next(keyword for keyword in section.keywords if f"{keyword!r}?" in hint)
    return f"unknown key {shown(name)}{hint}", meant
