"""The model of a rules file, checked and immutable.

::

    RuleSet ── Domain ── Step ── Step ── Rule ── RuleLimit ── Limit
                one a     one a descriptor   what applies
                domain    of the file        when it matched

A `Step` is one entry of the ``descriptors`` in a file: it matches one pair of a request's
descriptor. The last pair must end at a step with a `Rule`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import time

from penstock.limits import Limit
from penstock.rules.lists import ValueList
from penstock.rules.problems import Place

# Unescaped, they would make the ids of two rules equal, or break a line of a log.
_NOT_IN_IDS = re.compile("[%/=\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
ENFORCE, SHADOW, OFF = "enforce", "shadow", "off"


@dataclass(frozen=True, slots=True)
class RuleLimit:
    """One limit of a rule. ``replaces``, metrics and switches refer to it by ``name``.

    ``envoy`` means that it is in Envoy's format (``rate_limit``): as in Envoy's service, a debit
    is booked even if it does not fit. See `decide`.
    """

    limit: Limit
    name: str
    place: Place
    envoy: bool = False


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a plan of a ledger grants of one meter in each period."""

    amount: int
    unit: str
    rollover: int = 0
    overdraft: int = 0


@dataclass(frozen=True, slots=True)
class MeterUse:
    """What a rule takes from the quota of an account, which is the last value of a descriptor.

    Accounts that the ledger does not know are opened with the plan that the pair ``plan_by`` of the
    request names. ``on_failure`` is for when the ledger or the store cannot be asked.
    """

    meter: str
    name: str
    place: Place
    plan_by: str | None = None
    on_failure: str = "closed"


@dataclass(frozen=True, slots=True)
class Plans:
    """Limits by tier, which is the value of the pair ``by``; other values get the ``default``."""

    by: str
    tiers: Mapping[str, tuple[RuleLimit, ...]]
    default: str | None


@dataclass(frozen=True, slots=True)
class Split:
    """A stable ``percent`` of keys gets other limits. ``salt`` chooses which keys."""

    percent: float
    limits: tuple[RuleLimit, ...]
    salt: str


@dataclass(frozen=True, slots=True)
class Period:
    """Other limits from ``start`` until ``end``, which may be on the next day."""

    days: frozenset[int]  # Monday is 0; the day on which it starts
    start: time
    end: time
    zone: str
    limits: tuple[RuleLimit, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What applies to a descriptor that ends at a step."""

    id: str  # "api/plan=free/user": unique, readable, the same after a reload
    place: Place
    limits: tuple[RuleLimit, ...] = ()
    unlimited: bool = False
    closed: bool = False  # zero requests per unit: refuses everything
    closed_period_ns: int = 0  # that unit, which answers name
    shadow: bool = False
    quota: bool = False
    replaces: frozenset[str] = frozenset()
    cost: int = 1
    plans: Plans | None = None
    split: Split | None = None
    schedule: tuple[Period, ...] = ()
    # One limit, or none: how many hold a slot at once, and for how long. See `slots.py`.
    concurrency: tuple[RuleLimit, ...] = ()
    # The quota that it takes from, beside its limits.
    meter: MeterUse | None = None
    # Whether a store that leases may lease its limits: None leaves it to the store, and a number
    # is a horizon in nanoseconds.
    lease: bool | int | None = None
    detailed_metric: bool = False
    metadata: Mapping[str, object] = field(default_factory=dict)
    # Of its rate_limit, also where that leaves no limit to carry it: unlimited, or closed.
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One descriptor of the file.

    ``value`` is None for any value, else the text, in which ``*`` stands for any characters.
    """

    key: str
    value: str | None
    place: Place
    rule: Rule | None = None
    children: tuple[Step, ...] = ()
    group: tuple[int, int] | None = None  # lengths of the IPv4 and IPv6 networks that share
    allow: ValueList | None = None
    deny: ValueList | None = None
    share_threshold: bool = False
    value_to_metric: bool = False

    @property
    def is_wildcard(self) -> bool:
        return self.value is not None and "*" in self.value


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    place: Place
    steps: tuple[Step, ...]
    # For the whole domain, by key: who is never counted, and who is always refused.
    allow: Mapping[str, ValueList] = field(default_factory=dict)
    deny: Mapping[str, ValueList] = field(default_factory=dict)
    # Of the ledger, by name and meter.
    plans: Mapping[str, Mapping[str, Allowance]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All domains, by name; with the files that they came from, and a digest of each as read."""

    domains: Mapping[str, Domain]
    files: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def plans(self) -> dict[str, dict[str, Allowance]]:
        """The plans of all domains, for a ledger."""
        plans: dict[str, dict[str, Allowance]] = {}
        for domain in self.domains.values():
            for name, meters in domain.plans.items():
                plans.setdefault(name, {}).update(meters)
        return plans


def grouped(rules: RuleSet, groups: Mapping[str, tuple[int, int]]) -> RuleSet:
    """The rules with these groups for keys without any; the same object if nothing changes."""
    changed = {}
    for name, domain in rules.domains.items():
        steps = _grouped(domain.steps, groups)
        if steps is not domain.steps:
            changed[name] = replace(domain, steps=steps)
    return replace(rules, domains={**rules.domains, **changed}) if changed else rules


def _grouped(steps: tuple[Step, ...], groups: Mapping[str, tuple[int, int]]) -> tuple[Step, ...]:
    out = []
    for step in steps:
        children = _grouped(step.children, groups)
        group = step.group or groups.get(step.key)
        if children is not step.children or group is not step.group:
            step = replace(step, children=children, group=group)
        out.append(step)
    return steps if all(a is b for a, b in zip(out, steps, strict=True)) else tuple(out)


def without_quotas(rules: RuleSet) -> RuleSet:
    """The rules without the quotas of a ledger, for those who have none at hand."""
    return replace(
        rules,
        domains={
            name: replace(domain, steps=_without_quotas(domain.steps))
            for name, domain in rules.domains.items()
        },
    )


def _without_quotas(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(
        replace(
            step,
            rule=None if step.rule is None else replace(step.rule, meter=None),
            children=_without_quotas(step.children),
        )
        for step in steps
    )


def in_quota_mode(rules: RuleSet) -> RuleSet:
    """The rules, each in quota mode."""
    return replace(
        rules,
        domains={
            name: replace(domain, steps=_in_quota_mode(domain.steps))
            for name, domain in rules.domains.items()
        },
    )


def _in_quota_mode(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(
        replace(
            step,
            rule=None if step.rule is None else replace(step.rule, quota=True),
            children=_in_quota_mode(step.children),
        )
        for step in steps
    )


def id_part(text: str) -> str:
    """A key or a value as a part of an id, with special characters as ``%XX``."""
    return _NOT_IN_IDS.sub(_percent, text)


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
